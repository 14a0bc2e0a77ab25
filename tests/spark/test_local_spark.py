"""A Spark task in the workdir: what Spark leaves beside its tables is not published."""

from __future__ import annotations

from perago import SparkWorkspace
from perago.spark.places import SparkPlaces
from tests.scenarios.world import published_ref
from tests.spark.world import Made, Params, SparkWorld


def test_leftovers_of_spark_are_not_published_and_those_of_the_input_stay(local_world: SparkWorld) -> None:
    local_world.commit({"data/old/_SUCCESS": "", "data/old/.part-0.crc": "sum", "data/old/part-0": "x"})

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(workspace.spark.range(3), "new")
        folder = workspace.uri("new").removeprefix("file://")
        for name in ("_SUCCESS", ".part-9.crc", "_temporary/0/part-1", ".spark-staging-7/part-1"):
            path = f"{folder}/{name}"
            import os

            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
        return Made(said="done")

    before = set(local_world.paths())
    published_ref(local_world.run(local_world.task(body)))

    added = set(local_world.paths()) - before
    assert added
    assert all(path.startswith("data/new/part-") and path.endswith(".parquet") for path in added)
    assert before <= set(local_world.paths())


def test_a_worker_without_spark_says_so(local_world: SparkWorld) -> None:
    from perago.runtime.place import in_workdir

    definition = local_world.task()
    local_world.start(definition)

    settled = local_world.execute(definition, local_world.poll(definition), open_place=in_workdir)

    assert "needs Spark" in (settled.outcome.reason or "")


def test_plain_tasks_of_a_worker_with_spark_work_in_a_folder(local_world: SparkWorld) -> None:
    from tests.scenarios.world import make_task

    assert isinstance(local_world.places, SparkPlaces)
    published_ref(local_world.run(make_task()))

    assert local_world.files()["data/result.txt"] == "made"
