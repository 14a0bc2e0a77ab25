"""Spark tasks that declare what they read and write, on both placements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace, TaskFailed, require_glob, require_rows
from perago.protocol.view import View
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

COUNTS = [{"user": "ann", "count": 2}, {"user": "bob", "count": 1}]
NARROW: dict[str, Any] = {"reads": ("raw",), "writes": ("counts",)}


@pytest.fixture
def workspace(tmp_path: Path) -> SparkWorkspace:
    """A workspace whose Spark is never asked."""
    session: Any = object()
    return SparkWorkspace(tmp_path, session, view=View("data/", ("raw", "deep/in"), ("counts",)))


@pytest.mark.parametrize("path", ["raw-old", "songs", "deep", "*", "r*", "{raw,songs}", "deep/*"])
def test_a_path_that_the_task_does_not_see_is_refused(workspace: SparkWorkspace, path: str) -> None:
    for use in (workspace.uri, workspace.read):
        with pytest.raises(TaskFailed) as refused:
            use(path)
        assert str(refused.value) == (
            f"workspace path {path!r} is refused: it is outside what the task sees (counts, deep/in, raw); name it in "
            "WorkspaceSpec(reads=…)"
        )


@pytest.mark.parametrize("path", ["raw", "raw/new", "counts-old", "other", "deep/in/x"])
def test_a_path_that_the_task_may_not_change_is_not_written(workspace: SparkWorkspace, path: str) -> None:
    table: Any = None
    with pytest.raises(TaskFailed) as refused:
        workspace.write(table, path)
    assert str(refused.value) == (
        f"workspace path {path!r} is refused: it is outside what the task may change (counts); name it in "
        "WorkspaceSpec(writes=…)"
    )


@pytest.mark.parametrize("path", ["raw", "raw/*.csv", "raw/2026/*/x", "deep/in", "counts", "counts/part=1"])
def test_a_visible_path_has_an_address(workspace: SparkWorkspace, path: str) -> None:
    assert workspace.uri(path) == f"{workspace.base}/{path}"


def test_a_written_table_is_published_and_all_else_stays(world: SparkWorld) -> None:
    world.commit({"data/counts/old.parquet": "replaced", "data/counts-old/kept.parquet": "kept"})
    before = set(world.paths())

    published_ref(
        world.run(world.task(post=[require_rows("counts", min=2), require_glob("counts/*")], **NARROW))
    )

    assert world.rows("data/counts") == COUNTS
    assert before - set(world.paths()) == {"data/counts/old.parquet"}
    assert all(path.startswith("data/counts/part-") for path in set(world.paths()) - before)
    assert world.leftovers() == []


def test_checks_and_bodies_see_the_view_alone(world: SparkWorld) -> None:
    seen: list[str] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        seen.append(failure_of(lambda: workspace.read("notes.txt", format="text")))
        seen.append(failure_of(lambda: workspace.write(workspace.spark.range(1), "raw")))
        return Made(said="looked")

    a = world.head().id
    settled = world.run(world.task(body, pre=[require_glob("**/*.*", min_count=1, max_count=1)], **NARROW))

    assert published_ref(settled) == a
    assert "'notes.txt' is refused: it is outside what the task sees (counts, raw)" in seen[0]
    assert "'raw' is refused: it is outside what the task may change (counts)" in seen[1]


def failure_of(call: Any) -> str:
    try:
        call()
    except TaskFailed as refused:
        return str(refused)
    return "it did not fail"


@pytest.mark.parametrize("place", ["raw/new", "counts-old", "notes"])
def test_a_body_that_writes_past_the_workspace_is_refused_by_name(world: SparkWorld, place: str) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3).coalesce(1), "counts")
        uri = f"{workspace.base.rstrip('/')}/{place}"
        workspace.spark.range(1).selectExpr("'x' AS value").coalesce(1).write.text(uri)
        return Made(said="done")

    a, paths = world.head().id, world.paths()
    reason = failed(world.run(world.task(body, **NARROW)))

    assert f"the task changed {place}/" in reason
    assert "outside what it may change (counts)" in reason
    assert (world.head().id, world.paths()) == (a, paths)
    assert world.leftovers() == []


def test_deleting_a_path_that_is_only_read_is_refused(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        [staging] = [name for name in direct_world.leftovers() if name.startswith("perago-staging-")]
        direct_world.lake.delete(direct_world.repository, staging, ["data/raw/events.csv"])
        return Made(said="done")

    assert "the task changed raw/events.csv, outside" in failed(
        direct_world.run(direct_world.task(body, **NARROW))
    )
    assert "data/raw/events.csv" in direct_world.paths()


def test_files_that_spark_leaves_in_written_tables_are_not_published(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        options: dict[str, Any] = {"partitionOverwriteMode": "dynamic"}
        rows = workspace.spark.range(4).selectExpr("id", "id % 2 AS part").coalesce(1)
        workspace.write(rows, "deep/counts", partition_by=["part"], **options)
        return Made(said="done")

    before = set(world.paths())
    published_ref(world.run(world.task(body, reads=("raw",), writes=("deep/counts",))))

    added = set(world.paths()) - before
    assert len(added) == 2
    assert all(path.startswith("data/deep/counts/part=") for path in added)
    assert before <= set(world.paths())


@pytest.mark.parametrize("policy", ["replace", "supersede"])
def test_a_retry_over_an_abandoned_table_leaves_what_it_does_not_see(world: SparkWorld, policy: str) -> None:
    definition = world.task(on_abandoned=policy, **NARROW)
    world.start(definition)
    first = world.execute(definition, world.poll(definition), orchestrator=_Deaf(world.orchestrator))
    published_ref(first)
    paths = set(world.paths())

    published_ref(world.execute(definition, world.retry(definition)))

    assert world.rows("data/counts") == COUNTS
    assert {path for path in paths if not path.startswith("data/counts/")} <= set(world.paths())


class _Deaf:
    """An orchestrator that takes no result."""

    def __init__(self, port: Any) -> None:
        self._port = port

    def complete(self, *_: object, **__: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)
