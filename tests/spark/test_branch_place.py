"""Direct placement on real lakeFS: the worker moves no bytes, and the commit holds tables and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perago import SparkWorkspace
from tests.support.faults.ports import recording, refusing
from tests.support.worlds.spark_world import USERS, Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

TRANSFER = ("download", "upload")


def test_the_workers_transfer_is_not_called_and_the_workdir_holds_the_marker_alone(
    direct_world: SparkWorld,
) -> None:
    seen: list[list[str]] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.read("raw", format="csv", header=True), "table")
        seen.append([path.name for folder in direct_world.workdirs() for path in folder.iterdir()])
        return Made(said="done")

    definition, calls = direct_world.task(body), []
    direct_world.start(definition)
    lake = recording(refusing(direct_world.lake, *TRANSFER), calls)

    published_ref(direct_world.execute(definition, direct_world.poll(definition), lake=lake))

    assert seen == [[".perago-attempt.json"]]
    assert "merge" in calls
    assert not {*TRANSFER, "read"} & set(calls)


def test_staging_again_on_the_tasks_own_commit_copies_on_the_server(direct_world: SparkWorld) -> None:
    definition = direct_world.task(on_abandoned="supersede")
    direct_world.start(definition)
    first = direct_world.poll(definition)
    abandoned = published_ref(direct_world.execute(definition, first, orchestrator=Forgetful(direct_world)))
    lake = refusing(direct_world.lake, *TRANSFER)

    settled = direct_world.execute(definition, direct_world.retry(definition), lake=lake)

    assert direct_world.head().id == published_ref(settled)
    assert direct_world.head().first_parent == abandoned
    assert [row["user"] for row in direct_world.rows("data/counts")] == ["ann", "bob"]


def test_a_read_only_task_cannot_write_and_is_told_so(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3), "table")
        return Made(said="done")

    reason = failed(direct_world.run(direct_world.task(body, read_only=True)))

    assert "read_only=True" in reason
    assert "table" in reason


def test_nothing_that_a_read_only_task_writes_past_the_workspace_gets_into_the_lake(
    direct_world: SparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.range(3).write.csv(workspace.uri("table"))
        return Made(said="done")

    before = direct_world.paths()
    failed(direct_world.run(direct_world.task(body, read_only=True)))

    assert direct_world.paths() == before
    assert direct_world.leftovers() == []


class Forgetful:
    """An orchestrator that never hears of a result."""

    def __init__(self, world: SparkWorld) -> None:
        self._port = world.orchestrator

    def complete(self, *_: object, **__: object) -> bool:
        return False

    def __getattr__(self, name: str) -> object:
        return getattr(self._port, name)


def test_leftovers_of_failed_tasks_and_new_folder_markers_are_not_in_the_commit(
    direct_world: SparkWorld,
) -> None:
    direct_world.put(
        {"data/old/": "", "data/old/_SUCCESS": "", "data/old/_temporary/kept": "published before"}
    )
    direct_world.lake.commit(direct_world.repository, "main", "tables of another tool", {})
    before = set(direct_world.paths())

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3).coalesce(1), "table")
        [staging] = [name for name in direct_world.leftovers() if name.startswith("perago-staging-")]
        left = [
            "table/_temporary/0/_temporary/attempt_1/part-0",
            "table/_SUCCESS",
            "table/._SUCCESS.crc",
            "new/",
        ]
        left.append(".spark-staging-1/part-0")
        direct_world.put({f"data/{path}": "" for path in left}, branch=staging)
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    added = set(direct_world.paths()) - before
    assert len(added) == 1
    assert next(iter(added)).startswith("data/table/part-")
    assert before <= set(direct_world.paths())


def test_files_of_a_user_whose_names_begin_like_sparks_are_in_the_commit(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        [staging] = [name for name in direct_world.leftovers() if name.startswith("perago-staging-")]
        direct_world.put({f"data/{name}": "mine" for name in USERS}, branch=staging)
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    assert {f"data/{name}" for name in USERS} <= set(direct_world.paths())


def test_leftovers_alone_are_no_change(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        [staging] = [name for name in direct_world.leftovers() if name.startswith("perago-staging-")]
        direct_world.put({"data/table/_SUCCESS": "", "data/new/": ""}, branch=staging)
        return Made(said="done")

    a = direct_world.head().id

    assert published_ref(direct_world.run(direct_world.task(body))) == a == direct_world.head().id


def test_a_folder_marker_of_the_input_that_spark_takes_away_comes_back(direct_world: SparkWorld) -> None:
    direct_world.put({"data/table/": "", "data/table/part-old": "old"})
    direct_world.lake.commit(direct_world.repository, "main", "a table with a marker", {})

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3).coalesce(1), "table")
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    table = [path for path in direct_world.paths() if path.startswith("data/table/")]
    assert table[0] == "data/table/"
    assert len(table) == 2
    assert "data/table/part-old" not in table


def test_a_body_that_writes_actions_is_refused_by_name(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        uri = workspace.base + "/_lakefs_actions/evil"
        workspace.spark.range(1).selectExpr("'x' AS value").write.text(uri)
        return Made(said="done")

    a = direct_world.head().id
    reason = failed(direct_world.run(direct_world.task(body, prefix="/")))

    assert "_lakefs_actions/evil" in reason
    assert direct_world.head().id == a


@pytest.mark.parametrize("place", ["database/evil", "_lakefs_actions/evil", "evil"])
def test_a_body_that_writes_outside_its_prefix_is_refused_by_name(
    direct_world: SparkWorld, place: str
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3).coalesce(1), "table")
        uri = workspace.base.rstrip("/").removesuffix("/data") + f"/{place}"
        workspace.spark.range(1).selectExpr("'x' AS value").write.text(uri)
        return Made(said="done")

    a, paths = direct_world.head().id, direct_world.paths()
    reason = failed(direct_world.run(direct_world.task(body)))

    assert f"{place}/" in reason
    assert "outside its prefix /data" in reason
    assert (direct_world.head().id, direct_world.paths()) == (a, paths)
    assert direct_world.leftovers() == []


def test_a_body_that_deletes_outside_its_prefix_is_refused_though_it_changed_nothing_inside(
    direct_world: SparkWorld,
) -> None:
    direct_world.put({"other/kept": "theirs"})
    direct_world.lake.commit(direct_world.repository, "main", "another team's", {})

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        [staging] = [name for name in direct_world.leftovers() if name.startswith("perago-staging-")]
        direct_world.lake.delete(direct_world.repository, staging, ["other/kept"])
        return Made(said="done")

    assert "other/kept" in failed(direct_world.run(direct_world.task(body)))
    assert "other/kept" in direct_world.paths()


def test_the_only_table_of_a_branch_can_be_overwritten(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(9), "table")
        workspace.write(workspace.spark.range(3).coalesce(1), "table")
        return Made(said="done")

    direct_world.commit(dict.fromkeys(direct_world.paths()))
    published_ref(direct_world.run(direct_world.task(body, prefix="/")))

    assert direct_world.rows("table") == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_job_that_fails_in_the_middle_leaves_nothing(direct_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(4).repartition(4), "good")
        broken = (
            workspace.spark.range(4)
            .repartition(4)
            .selectExpr("IF(id = 3, raise_error('broken row'), id) AS id")
        )
        workspace.write(broken, "bad")
        return Made(said="done")

    a, paths = direct_world.head().id, direct_world.paths()
    reason = failed(direct_world.run(direct_world.task(body)))

    assert reason.startswith("writing table 'bad' failed: ")
    assert "broken row" in reason
    assert (direct_world.head().id, direct_world.paths()) == (a, paths)
    assert direct_world.leftovers() == []


def test_no_secret_is_in_the_sessions_configuration_or_on_a_command_line(direct_world: SparkWorld) -> None:
    published_ref(direct_world.run(direct_world.task()))
    secret = os.environ["LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"]
    conf = direct_world.sessions.get().sparkContext.getConf().getAll()

    assert not [key for key, value in conf if secret in value]
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret.encode() not in line.read_bytes()
        except OSError:
            continue
