"""Tables that must not be published: unreadable ones, and formats that name files of a removed workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago import SparkWorkspace
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref


def amounts(workspace: SparkWorkspace, kind: str, *days: int) -> Any:
    days_of = ", ".join(f"({day})" for day in days)
    return workspace.spark.sql(
        f"SELECT day, CAST(day AS {kind}) AS amount FROM VALUES {days_of} AS t(day)"
    ).coalesce(1)


def first(workspace: SparkWorkspace, params: Params) -> Made:
    workspace.write(amounts(workspace, "DECIMAL(38,18)", 1, 2), "days", partition_by=["day"])
    return Made(said="")


def in_partitions(workspace: SparkWorkspace, kind: str, *days: int) -> None:
    rows = amounts(workspace, kind, *days)
    workspace.write(rows, "days", partition_by=["day"], partitionOverwriteMode="dynamic")


def past_the_workspace(workspace: SparkWorkspace, kind: str, *days: int) -> None:
    amounts(workspace, kind, *days).write.partitionBy("day").mode("append").parquet(workspace.uri("days"))


@pytest.mark.parametrize("write", [in_partitions, past_the_workspace])
def test_new_files_of_another_type_beside_files_that_stay_are_not_published(
    world: SparkWorld, write: Any
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        write(workspace, params.text, 2, 3)
        return Made(said="")

    published_ref(world.run(world.task(first)))
    before = world.head().id

    reason = failed(world.run(world.task(body), text="DECIMAL(15,2)"))

    assert reason.startswith(
        "table 'days' would be unreadable: column 'amount' is decimal(15,2), and decimal(38,18)"
    )
    assert world.head().id == before


def test_partitions_are_replaced_where_types_agree_or_no_file_stays(local_world: SparkWorld) -> None:
    def same_type(workspace: SparkWorkspace, params: Params) -> Made:
        in_partitions(workspace, "DECIMAL(38,18)", 2)
        return Made(said="")

    def all_days(workspace: SparkWorkspace, params: Params) -> Made:
        in_partitions(workspace, "DECIMAL(15,2)", 1, 2)
        return Made(said="")

    for body in (first, same_type, all_days):
        published_ref(local_world.run(local_world.task(body)))

    assert [row["day"] for row in local_world.rows("data/days")] == [1, 2]


def test_files_that_are_only_called_like_sparks_are_published(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        Path(workspace.uri("days").removeprefix("file://"), "part-00000-mine.parquet").write_text("mine")
        return Made(said="")

    for each in (first, body):
        published_ref(local_world.run(local_world.task(each)))

    assert "data/days/part-00000-mine.parquet" in local_world.paths()


@pytest.mark.parametrize(
    ("inside", "named"), [("sink", "sink/_spark_metadata/0"), ("checkpoint", "checkpoint/offsets/0")]
)
def test_a_streaming_sink_or_checkpoint_in_the_workspace_fails_by_name(
    local_world: SparkWorld, tmp_path: Path, inside: str, named: str
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        where = {name: str(tmp_path / name) for name in ("sink", "checkpoint")}
        where[inside] = workspace.uri(inside)
        stream = workspace.spark.readStream.schema("user STRING, ms INT").csv(
            workspace.uri("raw"), header=True
        )
        writing = stream.writeStream.option("checkpointLocation", where["checkpoint"])
        writing.trigger(availableNow=True).start(where["sink"], format="parquet").awaitTermination()
        return Made(said="")

    a = local_world.head().id
    reason = failed(local_world.run(local_world.task(body)))

    assert f"the task wrote {named}" in reason
    assert "which names files by absolute paths" in reason
    assert local_world.head().id == a
