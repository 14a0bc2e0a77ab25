"""The contract of a Spark task, on both placements: the workdir on the embedded lake, the staging branch on lakeFS."""

from __future__ import annotations

import pytest

from perago import SparkWorkspace, TaskFailed, WorkspaceSpec, require_columns, require_glob, require_rows
from perago.errors import LakeUnavailable
from tests.support.faults.ports import after, before, refusing
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import abandon, make_task, published_ref

COUNTS = [{"user": "ann", "count": 2}, {"user": "bob", "count": 1}]


def test_a_table_is_published_whole_and_nothing_else_with_it(world: SparkWorld) -> None:
    before_it, a = set(world.paths()), world.head().id

    ref = published_ref(world.run(world.task()))

    assert world.head().id == ref
    assert world.head().first_parent == a
    assert world.rows("data/counts") == COUNTS
    added = set(world.paths()) - before_it
    assert all(path.startswith("data/counts/part-") and path.endswith(".parquet") for path in added)
    assert before_it <= set(world.paths())
    assert world.leftovers() == []
    assert world.workdirs() == []


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc", "text"])
def test_every_format_is_written_and_read_back(world: SparkWorld, format: str) -> None:
    read: list[list[tuple[object, ...]]] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        names = workspace.spark.range(3).selectExpr("concat('name ', id) AS value")
        workspace.write(names, "table", format=format)
        found = workspace.read("table", format=format)
        read.append(sorted(tuple(row) for row in found.collect()))
        return Made(said="done")

    published_ref(world.run(world.task(body)))

    assert read == [[("name 0",), ("name 1",), ("name 2",)]]


def test_partitions_are_folders_and_come_back_as_columns(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.range(6).selectExpr("id", "id % 2 AS part").coalesce(1)
        workspace.write(rows, "table", partition_by=["part"])
        return Made(said=str(workspace.read("table").where("part = 1").count()))

    settled = world.run(world.task(body))

    assert settled.outcome.output is not None
    assert settled.outcome.output["result"] == {"said": "3"}
    folders = {path.split("/")[2] for path in world.paths() if path.startswith("data/table/")}
    assert folders == {"part=0", "part=1"}


def test_overwriting_a_table_replaces_all_of_it(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(2, 5).coalesce(1), "table")
        return Made(said="done")

    def first(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(100).repartition(4), "table")
        return Made(said="done")

    published_ref(world.run(world.task(first)))
    published_ref(world.run(world.task(body)))

    assert world.rows("data/table") == [{"id": 2}, {"id": 3}, {"id": 4}]


@pytest.mark.parametrize("path", ["../out", "/etc/x", "a/../../b", "s3a://else/x", "", "a//b", ".", "a\\b"])
def test_a_path_that_leaves_the_workspace_is_refused(world: SparkWorld, path: str) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(1), path)
        return Made(said="done")

    a = world.head().id
    reason = failed(world.run(world.task(body)))

    assert "is refused" in reason
    assert world.head().id == a


def test_a_body_that_fails_leaves_nothing_on_the_target(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(10), "table")
        raise TaskFailed("no")

    a, paths = world.head().id, world.paths()
    assert failed(world.run(world.task(body))) == "no"

    assert (world.head().id, world.paths()) == (a, paths)
    assert world.leftovers() == []
    assert world.workdirs() == []


def test_a_stale_attempt_leaves_nothing_on_the_target(world: SparkWorld) -> None:
    definition, a = world.task(), world.head().id
    world.start(definition)
    assignment = world.poll(definition)

    def timed_out() -> None:
        world.orchestrator.time_out_in_progress("the worker is thought dead")

    orchestrator = before(world.orchestrator, "current", timed_out)
    settled = world.execute(definition, assignment, orchestrator=orchestrator)

    assert not settled.outcome.send
    assert world.head().id == a
    assert world.leftovers() == []


def test_a_body_that_changes_nothing_commits_nothing(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=str(workspace.read("raw", format="csv", header=True).count()))

    a = world.head().id
    definition = world.task(body)
    world.start(definition)
    lake = refusing(world.lake, "commit", "merge", "relocate")

    settled = world.execute(definition, world.poll(definition), lake=lake)

    assert published_ref(settled) == a == world.head().id
    assert world.leftovers() == []


def test_a_drop_that_fails_does_not_change_that(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=str(workspace.read("raw", format="csv", header=True).count()))

    a = world.head().id
    definition = world.task(body)
    world.start(definition)
    lake = refusing(world.lake, "drop_branch", error=LakeUnavailable("gone dark"))

    assert published_ref(world.execute(definition, world.poll(definition), lake=lake)) == a


def test_a_no_op_after_an_abandoned_publication_moves_the_branch_back(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=str(workspace.read("raw", format="csv", header=True).count()))

    a = world.head().id
    world.start(world.task())
    abandoned = abandon(world, world.task())

    settled = world.execute(world.task(body), world.retry(world.task()))

    assert published_ref(settled) == a == world.head().id
    assert world.replaced() == [abandoned]


def test_files_of_a_read_only_task_are_dropped(local_world: SparkWorld) -> None:
    a = local_world.head().id

    settled = local_world.run(local_world.task(read_only=True))

    assert published_ref(settled) == a == local_world.head().id
    assert local_world.leftovers() == []


def test_a_read_only_task_needs_no_branch(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=str(workspace.read("raw", format="csv", header=True).count()))

    a = world.head().id
    definition = world.task(body, read_only=True, post=[require_glob("raw/*.csv")])
    world.start(definition)
    lake = refusing(world.lake, "create_branch", "commit", "merge", "relocate", "drop_branch")

    settled = world.execute(definition, world.poll(definition), lake=lake)

    assert published_ref(settled) == a == world.head().id


def test_a_following_plain_task_with_the_same_prefix_reads_the_table(world: SparkWorld) -> None:
    published_ref(world.run(world.task()))

    def look(workspace, params):
        return Made(said=",".join(sorted(path.suffix for path in (workspace / "counts").iterdir())))

    settled = world.run(make_task(look, read_only=True))

    assert settled.outcome.output is not None
    assert settled.outcome.output["result"] == {"said": ".parquet"}


def test_checks_on_paths_and_tables_see_what_the_body_left(world: SparkWorld) -> None:
    spec = {
        "pre": [require_glob("raw/*.csv"), require_columns("raw", ["user"], format="csv", header=True)],
        "post": [require_glob("counts/*.parquet"), require_rows("counts", 2, 2)],
    }
    published_ref(world.run(world.task(**spec)))
    a = world.head().id

    reason = failed(world.run(world.task(**{**spec, "post": [require_rows("counts", 3)]})))

    assert reason == "post check require_rows('counts', min=3) failed: it has 2 rows, 3 or more are required"
    assert world.head().id == a


def test_post_checks_on_paths_do_not_see_what_spark_leaves_behind(world: SparkWorld) -> None:
    spec = WorkspaceSpec(post=[require_glob("counts/**", min_count=1, max_count=1)])

    published_ref(world.run(world.task(post=spec.post)))


@pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
def test_an_abandoned_publication_ends_as_the_policy_says(world: SparkWorld, policy: str) -> None:
    definition, a = world.task(on_abandoned=policy), world.head().id
    workflow = world.start(definition)

    def die() -> None:
        raise KeyboardInterrupt

    lake = after(world.lake, "merge", die)
    with pytest.raises(KeyboardInterrupt):
        world.execute(definition, world.poll(definition), lake=lake)
    abandoned = world.head().id
    assert abandoned != a

    settled = world.execute(definition, world.retry(definition))

    assert published_ref(settled) == world.head().id == world.workflow(workflow).output["ref"]
    assert world.rows("data/counts") == COUNTS
    history = world.history()
    if policy == "replace":
        assert (world.head().first_parent, world.replaced()) == (a, [abandoned])
    elif policy == "supersede":
        assert history[:3] == [world.head().id, abandoned, a]
    else:
        assert world.head().id == abandoned
    assert world.leftovers() == []


def test_a_retry_that_changes_nothing_takes_the_abandoned_publication_back(world: SparkWorld) -> None:
    writing, a = [True], world.head().id

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        if writing.pop():
            writing.append(False)
            workspace.write(workspace.spark.range(3), "table")
        return Made(said="done")

    def die() -> None:
        raise KeyboardInterrupt

    definition = world.task(body)
    world.start(definition)
    with pytest.raises(KeyboardInterrupt):
        world.execute(definition, world.poll(definition), lake=after(world.lake, "merge", die))
    abandoned = world.head().id

    settled = world.execute(definition, world.retry(definition))

    assert published_ref(settled) == a == world.head().id
    assert world.replaced() == [abandoned]
