"""A Spark task in the workdir: what Spark leaves beside its tables is not published."""

from __future__ import annotations

from pathlib import Path

from perago import SparkWorkspace
from perago.spark.places import SparkPlaces
from tests.support.worlds.spark_world import USERS, Made, Params, SparkWorld
from tests.support.worlds.world import published_ref


def test_leftovers_of_spark_are_not_published_and_those_of_the_input_stay(local_world: SparkWorld) -> None:
    local_world.commit({"data/old/_SUCCESS": "", "data/old/.part-0.crc": "sum", "data/old/part-0": "x"})

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3), "new")
        folder = workspace.uri("new").removeprefix("file://")
        for name in ("_SUCCESS", "_temporary/0/part-1", ".spark-staging-7/part-1"):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        for part in list(Path(folder).glob("part-*")):
            part.with_name(f".{part.name}.crc").touch()
        return Made(said="done")

    before = set(local_world.paths())
    published_ref(local_world.run(local_world.task(body)))

    added = set(local_world.paths()) - before
    assert added
    assert all(path.startswith("data/new/part-") and path.endswith(".parquet") for path in added)
    assert before <= set(local_world.paths())


def test_files_of_a_user_whose_names_begin_like_sparks_are_published(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3), "table")
        folder = Path(workspace.uri("table").removeprefix("file://"))
        for name in USERS:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("mine")
        return Made(said="done")

    published_ref(local_world.run(local_world.task(body)))

    published = {path for path in local_world.paths() if path.startswith("data/table/")}
    assert {f"data/table/{name}" for name in USERS} <= published
    assert not [path for path in published if path.endswith(".crc") and "part-" in path]


def test_a_worker_without_spark_says_so(local_world: SparkWorld) -> None:
    from perago.runtime.attempt.place import open_workdir_place

    definition = local_world.task()
    local_world.start(definition)

    settled = local_world.execute(definition, local_world.poll(definition), open_place=open_workdir_place)

    assert "needs Spark" in (settled.outcome.reason or "")


def test_plain_tasks_of_a_worker_with_spark_work_in_a_folder(local_world: SparkWorld) -> None:
    from tests.support.worlds.world import make_task

    assert isinstance(local_world.places, SparkPlaces)
    published_ref(local_world.run(make_task()))

    assert local_world.files()["data/result.txt"] == "made"
