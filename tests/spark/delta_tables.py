"""Delta tables in workspaces: the workdir on the embedded lake and on lakeFS, and the staging branch over s3a.

`test_delta.py` runs this file with the versions of `dev/delta-requirements.txt`; the rest of the suite has a newer Spark,
for which there is no Delta yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pydantic import BaseModel

from perago import GuardrailViolation, SparkWorkspace, TaskFailed, require_rows, require_unique
from perago.settings import load_settings
from perago.spark.s3a import s3a_packages
from perago.spark.session import Sessions
from realservers.delta import delta_jar
from tests.contract.lakes import LAKES
from tests.spark.conftest import FEW_ROWS, LAKEFS, as_setting
from tests.support.docs.pages import ROOT
from tests.support.faults.ports import after
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

WORLDS = {
    "embedded lake": ("local", "local"),
    "lakeFS": ("local", "lakefs"),
    "lakeFS over s3a": ("direct", "lakefs"),
}
LOG = re.compile(r"_delta_log/(\d{20}\.(json|crc|checkpoint\.parquet)|_last_checkpoint)")
DATA = re.compile(r"part-\d{5}-[0-9a-f-]{36}[.-]c000\.snappy\.parquet")


class Song(BaseModel):
    id: int
    title: str


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    """A session that is configured as the page says, with Delta's jar for this Spark."""
    page = (ROOT / "docs/spark-tasks.md").read_text()
    rows = dict(re.findall(r"^\| `(spark\.\S+)` \| `([^`]+)` \|$", page, re.MULTILINE))
    delta = {name: rows[name] for name in ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")}
    plain = {
        **FEW_ROWS,
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.adaptive.enabled": "false",
    }
    conf = {"spark.jars.packages": delta_jar(), **delta, **plain}
    environ = {
        "PERAGO_SPARK_MASTER": "local[2]",
        "PERAGO_SPARK_SESSION": "quick",
        "PERAGO_SPARK_CONF": as_setting(conf),
    }
    settings = load_settings(environ, root=tmp_path_factory.mktemp("spark-root"))
    return Sessions(settings, s3a_packages(os.environ)) if os.environ.get(LAKEFS) else Sessions(settings)


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test in these worlds: what a lake or a placement may change is tried on each, the rest on one."""
    marks = {name: (pytest.mark.servers,) if WORLDS[name][1] == "lakefs" else () for name in names}
    worlds = [pytest.param(name, marks=marks[name]) for name in names]
    return pytest.mark.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, sessions: Sessions, tmp_path: Path) -> Iterator[SparkWorld]:
    """A world with Delta's table `data/songs` of three rows, version 0."""
    placement, lake = WORLDS[request.param]
    with LAKES[lake].open(request) as opened:
        made = SparkWorld(opened.lake, opened.repository, tmp_path, sessions=sessions, placement=placement)
        made.commit({"data/notes.txt": "kept"})
        published_ref(made.run(made.task(create)))
        yield made
        made.orchestrator.close()


def songs(workspace: SparkWorkspace, *ids: int, title: str = "old") -> Any:
    rows = ", ".join(f"({one}L, '{title} {one}')" for one in ids)
    return workspace.spark.sql(f"SELECT * FROM VALUES {rows} AS (id, title)")


def create(workspace: SparkWorkspace, params: Params) -> Made:
    # A checkpoint soon, so that a following task starts from one.
    options = {"delta.checkpointInterval": 2}
    workspace.write(songs(workspace, 1, 2, 3).coalesce(1), "songs", "delta", schema=Song, **options)
    return Made(said="created")


def append(workspace: SparkWorkspace, params: Params) -> Made:
    new = songs(workspace, 4, title=params.text)
    workspace.write(new.coalesce(1), "songs", "delta", mode="append")
    return Made(said="appended")


def titles(workspace: SparkWorkspace, **options: Any) -> str:
    found = workspace.read("songs", "delta", schema=Song, **options).collect()
    return ", ".join(row.title for row in sorted(found))


def reading(world: SparkWorld, **options: Any) -> str:
    """The titles that a following task reads."""

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=titles(workspace, **options))

    # With a new name: a failed task still has a retry to poll.
    settled = world.run(world.task(body, name="read", read_only=True))
    assert settled.outcome.output is not None, settled.outcome
    return str(settled.outcome.output["result"]["said"])


def table(world: SparkWorld, ref: str = "main") -> list[str]:
    """Return the table's objects in the lake, by path below it."""
    return [path.removeprefix("data/songs/") for path in world.paths(ref) if path.startswith("data/songs/")]


def versions(world: SparkWorld) -> list[int]:
    return [int(path[11:31]) for path in table(world) if path.endswith(".json")]


@on("embedded lake", "lakeFS over s3a")
def test_a_table_is_appended_to_merged_into_and_overwritten_and_keeps_its_versions(world: SparkWorld) -> None:
    def change(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(songs(workspace, 4).coalesce(1), "songs", "delta", mode="append")
        target = DeltaTable.forPath(workspace.spark, workspace.uri("songs")).alias("t")
        merge = target.merge(songs(workspace, 4, 5, title="new").alias("n"), "t.id = n.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        return Made(said=titles(workspace))

    def overwrite(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(songs(workspace, 9).coalesce(1), "songs", "delta")
        seen = [titles(workspace, versionAsOf=version) for version in (0, 2, 3)]
        return Made(said=" | ".join(seen))

    first = set(table(world))
    changed = world.run(world.task(change))
    a = published_ref(changed)
    overwritten = world.run(world.task(overwrite))

    assert changed.outcome.output is not None
    assert changed.outcome.output["result"]["said"] == "old 1, old 2, old 3, new 4, new 5"
    assert published_ref(overwritten) == world.head().id
    assert overwritten.outcome.output is not None
    assert overwritten.outcome.output["result"]["said"].split(" | ") == [
        "old 1, old 2, old 3",
        "old 1, old 2, old 3, new 4, new 5",
        "old 9",
    ]
    assert versions(world) == [0, 1, 2, 3]
    assert {"_delta_log/_last_checkpoint", f"_delta_log/{2:020}.checkpoint.parquet"} <= set(table(world))
    assert [path for path in table(world) if not LOG.fullmatch(path) and not DATA.fullmatch(path)] == []
    assert first <= set(table(world, a)) <= set(table(world))
    assert "data/notes.txt" in world.paths()
    assert world.leftovers() == []


@on("lakeFS", "lakeFS over s3a")
def test_an_attempt_that_fails_after_its_write_leaves_the_table_as_it_was(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        append(workspace, params)
        raise TaskFailed("no")

    a, paths = world.head().id, world.paths()
    assert failed(world.run(world.task(body))) == "no"

    assert (world.head().id, world.paths()) == (a, paths)
    assert reading(world) == "old 1, old 2, old 3"


@on(*WORLDS)
def test_a_retry_begins_at_the_version_of_its_input_and_takes_the_place_of_what_was_abandoned(
    world: SparkWorld,
) -> None:
    texts = iter(["lost", "kept"])

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return append(workspace, Params(text=next(texts)))

    def die() -> None:
        raise KeyboardInterrupt

    definition, a = world.task(body), world.head().id
    world.start(definition)
    with pytest.raises(KeyboardInterrupt):
        world.execute(definition, world.poll(definition), lake=after(world.lake, "merge", die))
    abandoned = world.head().id
    published_ref(world.execute(definition, world.retry(definition)))

    assert (world.head().first_parent, world.replaced()) == (a, [abandoned])
    assert reading(world) == "old 1, old 2, old 3, kept 4"
    assert versions(world) == [0, 1]


@on("embedded lake")
def test_of_two_tasks_that_make_the_same_version_at_once_the_second_is_refused(world: SparkWorld) -> None:
    first = world.task(append, name="first")

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        append(workspace, params)
        published_ref(world.run(first, text="first"))
        return Made(said="too late")

    second = world.task(body, on_advanced="rebase", on_abandoned="supersede")
    reason = failed(world.run(second, text="second"))

    assert "'data/songs/_delta_log/00000000000000000001." in reason
    assert reading(world) == "old 1, old 2, old 3, first 4"
    assert versions(world) == [0, 1]


@on("lakeFS over s3a")
def test_checks_see_only_current_rows(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(songs(workspace, 8, 9).coalesce(1), "songs", "delta")
        return Made(said="done")

    rows, unique = require_rows("songs", 2, 2, format="delta"), require_unique("songs", "id", format="delta")
    published_ref(
        world.run(world.task(body, pre=[require_rows("songs", 3, 3, format="delta")], post=[rows, unique]))
    )

    wrong = failed(world.run(world.task(body, name="wrong", pre=[require_rows("songs", 3, format="delta")])))
    as_files = failed(world.run(world.task(body, name="files", pre=[require_rows("songs", 3)])))

    assert wrong.endswith("failed: it has 2 rows, 3 or more are required")
    assert as_files.endswith('failed: it is a Delta table, not parquet; say format="delta"')


@pytest.fixture
def workspace(sessions: Sessions, tmp_path: Path) -> SparkWorkspace:
    return SparkWorkspace(tmp_path, sessions.get())


def test_a_delta_table_is_not_read_or_overwritten_as_plain_files(workspace: SparkWorkspace) -> None:
    create(workspace, Params(text=""))

    for doing in (
        lambda: workspace.read("songs"),
        lambda: workspace.write(songs(workspace, 1), "songs"),
        lambda: workspace.write(songs(workspace, 1), "songs", "Parquet", mode="append"),
    ):
        with pytest.raises(GuardrailViolation, match="it is a Delta table, not parquet"):
            doing()
    assert titles(workspace) == "old 1, old 2, old 3"


def test_a_delta_table_does_not_begin_among_other_files(workspace: SparkWorkspace) -> None:
    workspace.write(songs(workspace, 1, 2), "songs")

    with pytest.raises(GuardrailViolation, match="there are files of another format"):
        create(workspace, Params(text=""))

    assert workspace.read("songs").count() == 2
