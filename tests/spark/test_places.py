"""Which placement a Spark task has, and what is refused before a worker polls."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago import RuntimeConfigError, TaskDefinitionError, require_glob, require_rows
from perago.backend import Embedded, Real
from perago.runtime.attempt.place import open_workdir_place
from perago.settings import Settings, load_settings
from perago.spark.placement import placement_of
from tests.support.worlds.spark_world import make_spark_task
from tests.support.worlds.world import make_task

LAKEFS = {
    "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:1",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "key",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "secret",
}


def settings(tmp_path: Path, master: str = "local[2]") -> Settings:
    return load_settings({**LAKEFS, "PERAGO_SPARK_MASTER": master}, root=tmp_path)


@pytest.mark.parametrize(
    ("placement", "master", "embedded", "where"),
    [
        ("auto", "local[*]", False, "local"),
        ("auto", "local[*]", True, "local"),
        ("auto", "local-cluster[2,1,1024]", True, "local"),
        ("auto", "spark://head:7077", False, "direct"),
        ("local", "local-cluster[2,1,1024]", False, "local"),
        ("direct", "local[*]", False, "direct"),
    ],
)
def test_the_table_of_placements(
    tmp_path: Path, placement: str, master: str, embedded: bool, where: str
) -> None:
    definition = make_spark_task(placement=placement)

    assert placement_of(definition, settings(tmp_path, master), embedded=embedded) == where
    (Embedded if embedded else Real)(settings(tmp_path, master)).check_places([definition])


@pytest.mark.parametrize("servers", [Embedded, Real])
@pytest.mark.parametrize("master", ["spark://head:7077", "yarn", "k8s://https://head:6443"])
def test_a_folder_of_this_machine_with_executors_elsewhere_is_refused_at_start(
    tmp_path: Path, servers: type[Embedded | Real], master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    told = "in a folder of this machine, which the executors of .* do not share"
    with pytest.raises(RuntimeConfigError, match=f"'make' has placement=\"local\", .*{told}"):
        servers(settings(tmp_path, master)).check_places([make_spark_task(placement="local")])
    if servers is Embedded:
        with pytest.raises(RuntimeConfigError, match=f"'make' has placement=\"auto\", .*{told}"):
            servers(settings(tmp_path, master)).check_places([make_spark_task()])


def test_direct_on_the_embedded_lake_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeConfigError, match="'make' has placement=\"direct\", which needs lakeFS"):
        Embedded(settings(tmp_path)).check_places([make_spark_task(placement="direct")])


def test_a_callable_that_wants_a_folder_is_refused_with_direct_placement(tmp_path: Path) -> None:
    def look_at_files(workdir, params):
        return None

    fine = make_spark_task(placement="direct", pre=[require_glob("raw/*"), require_rows("raw")])
    wrong = make_spark_task(placement="direct", pre=[look_at_files])

    Real(settings(tmp_path)).check_places([fine])
    Real(settings(tmp_path)).check_places([make_spark_task(placement="local", pre=[look_at_files])])
    with pytest.raises(TaskDefinitionError, match=r"look_at_files: needs a folder on disk"):
        Real(settings(tmp_path)).check_places([wrong])


def test_plain_tasks_need_no_spark(tmp_path: Path) -> None:
    assert Embedded(settings(tmp_path)).open_places([make_task()]) is open_workdir_place
