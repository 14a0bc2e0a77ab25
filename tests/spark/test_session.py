"""The session's configuration: Perago's defaults below spark-defaults.conf below what the operator says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from perago import RuntimeConfigError
from perago.settings import load_settings
from perago.spark.config import is_local, is_quick, log_options, session_conf
from perago.spark.engine_context import EngineContext
from perago.spark.placement import placement_of
from perago.spark.session import Sessions
from perago.spark.session_spec import SessionSpec
from perago.spark_defaults import parse_conf
from tests.support.worlds.spark_world import make_spark_task


def conf_of(tmp_path: Path, environ: dict[str, str]) -> dict[str, str]:
    return session_conf(load_settings(environ, root=tmp_path), tmp_path / "scratch", environ)


def test_a_local_master_gets_sizes_of_a_small_machine_and_keeps_out_of_the_current_folder(
    tmp_path: Path,
) -> None:
    conf = conf_of(tmp_path, {})

    assert conf["spark.master"] == "local[*]"
    assert int(conf["spark.sql.shuffle.partitions"]) == max(4, 2 * (os.cpu_count() or 1))
    assert conf["spark.ui.enabled"] == "false"
    assert conf["spark.sql.adaptive.enabled"] == "true"
    assert conf["spark.sql.execution.arrow.pyspark.enabled"] == "true"
    assert conf["spark.sql.warehouse.dir"].startswith(str(tmp_path))


def test_a_cluster_keeps_its_own_sizes(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, {"PERAGO_SPARK_MASTER": "spark://head:7077"})

    assert conf["spark.master"] == "spark://head:7077"
    assert not {"spark.sql.shuffle.partitions", "spark.driver.memory", "spark.local.dir"} & conf.keys()


def test_operator_settings_win_over_spark_defaults_and_those_win_over_ours(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# sizes\nspark.sql.shuffle.partitions 77\nspark.driver.memory=9g\nspark.ui.enabled  true\n"
    )
    environ = {"SPARK_CONF_DIR": str(tmp_path), "PERAGO_SPARK_CONF": "spark.driver.memory=3g; a.b = x=y "}

    conf = conf_of(tmp_path, environ)

    assert "spark.sql.shuffle.partitions" not in conf
    assert "spark.ui.enabled" not in conf
    assert conf["spark.driver.memory"] == "3g"
    assert conf["a.b"] == "x=y"


@pytest.mark.parametrize(
    ("file", "variable", "conf", "master"),
    [
        (None, None, None, "local[*]"),
        ("spark://file:7077", None, None, "spark://file:7077"),
        ("spark://file:7077", "local[3]", None, "local[3]"),
        ("local[2]", "spark://variable:7077", "local[4]", "spark://variable:7077"),
        ("local[2]", None, "spark://conf:7077", "spark://conf:7077"),
    ],
)
def test_one_precedence_decides_the_master_of_the_session_its_sizes_and_the_placement(
    tmp_path: Path, file: str | None, variable: str | None, conf: str | None, master: str
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"spark.master {file}\n" if file else "")
    environ = {"SPARK_CONF_DIR": str(tmp_path), "PERAGO_SPARK_SESSION": "quick"}
    environ |= {"PERAGO_SPARK_MASTER": variable} if variable else {}
    environ |= {"PERAGO_SPARK_CONF": f"a=b;spark.master={conf}"} if conf else {}
    settings = load_settings(environ, root=tmp_path)

    found = conf_of(tmp_path, environ)

    local = master.startswith("local")
    assert found["spark.master"] == settings.spark_master == master
    assert ("spark.driver.memory" in found) is is_quick(settings) is local
    assert placement_of(make_spark_task(), settings, embedded=False) == ("local" if local else "direct")
    assert EngineContext(settings, [], failures=2, conf={})._on_this_machine is local


def test_sparks_own_home_has_the_file_where_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master=spark://home:7077\n")

    assert load_settings({"SPARK_HOME": str(tmp_path)}).spark_master == "spark://home:7077"
    assert load_settings({}).spark_master == "local[*]"


def test_a_wrong_pair_is_named() -> None:
    with pytest.raises(RuntimeConfigError, match="PERAGO_SPARK_CONF: 'oops' is not key=value"):
        parse_conf("a=1;oops")


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[4]", True), ("local[*]", True), ("spark://h:7077", False), ("yarn", False)],
)
def test_local_masters_are_recognized(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_the_session_is_one_for_the_process_and_its_checks_beside_it(sessions: Sessions) -> None:
    assert sessions.get() is sessions.get()
    assert sessions.for_checks() is sessions.for_checks()
    assert sessions.get().conf.get("spark.sql.adaptive.enabled") == "true"
    assert sessions.for_checks().conf.get("spark.sql.adaptive.enabled") == "false"
    assert sessions.for_checks().sparkContext is sessions.get().sparkContext


def test_scratch_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    from perago.runtime.root.state_dir import own_folder, process_identity

    dead, alive = tmp_path / "session-dead", tmp_path / "session-alive"
    for folder, owner in ((dead, {**process_identity(), "pid_started": 1}), (alive, process_identity())):
        (folder / "blockmgr").mkdir(parents=True)
        (folder / "owner.json").write_text(json.dumps(owner))

    mine = own_folder(tmp_path, "session")

    assert {path.name for path in tmp_path.iterdir()} == {"session-alive", mine.name}


def test_the_environment_is_ready_before_a_body_can_begin_beside_the_start(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    sessions.warm_up(SessionSpec())

    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_an_operators_own_log4j_configuration_wins(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    given = {"SPARK_CONF_DIR": str(tmp_path / "conf")}

    (option,) = log_options(tmp_path, given)
    assert Path(option.removeprefix("-Dlog4j2.configurationFile=file://")).is_file()
    (tmp_path / "conf" / "log4j2.properties").touch()
    assert log_options(tmp_path, given) == ()
    assert log_options(tmp_path, {"SPARK_HOME": str(tmp_path)}) == ()


def test_a_folder_whose_name_the_command_line_would_tear_goes_without(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()

    assert log_options(tmp_path / "a b", {}) == ()
