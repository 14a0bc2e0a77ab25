"""Tables that must not be published: unreadable ones, and formats that name files of a removed workspace."""

from __future__ import annotations

import json
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


def test_files_beside_the_partitions_of_a_table_are_not_published(world: SparkWorld) -> None:
    def beside(workspace: SparkWorkspace, params: Params) -> Made:
        more = amounts(workspace, "DECIMAL(38,18)", 3)
        more.write.mode("append").parquet(workspace.uri("days"))
        return Made(said="")

    def both(workspace: SparkWorkspace, params: Params) -> Made:
        first(workspace, params)
        return beside(workspace, params)

    says = "rows of table 'days' could not be read: its files are partitioned not at all and by day"
    assert failed(world.run(world.task(both, name="both"))).startswith(says)
    published_ref(world.run(world.task(first)))
    assert failed(world.run(world.task(beside, name="beside"))).startswith(says)


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


def put(workspace: SparkWorkspace, path: str, content: str) -> None:
    """Write a file past Spark, on either placement."""
    jvm: Any = workspace.spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(workspace.uri(path))
    conf = workspace.spark.sparkContext._jsc.hadoopConfiguration()
    stream = where.getFileSystem(conf).create(where, True)
    stream.write(bytearray(content.encode()))
    stream.close()


REFUSED = {
    "t/_spark_metadata/0": ("v1\n", "the log of a streaming sink", "workspace.write (foreachBatch)"),
    "c/offsets/0": ("v1\n", "a streaming checkpoint", "workspace.write (foreachBatch)"),
    "t/metadata/v1.metadata.json": ('{"format-version": 2}', "an Iceberg table", "such as Parquet or Delta"),
    "u/metadata/v1.gz.metadata.json": ("compressed", "an Iceberg table", "such as Parquet or Delta"),
    "t/.hoodie/hoodie.properties": ("hoodie.table.name=t\n", "a Hudi table", "such as Parquet or Delta"),
    "t/_symlink_format_manifest/manifest": ("x", "a manifest of symbolic links", "where the table is read"),
    "t/_delta_log/00000000000000000000.json": ("", "a shallow clone", "write a copy of the rows instead"),
}


def test_each_format_with_absolute_paths_fails_by_name_with_an_alternative(world: SparkWorld) -> None:
    a = world.head().id
    for path, (content, kind, alternative) in REFUSED.items():

        def body(workspace: SparkWorkspace, params: Params) -> Made:
            put(workspace, "c/metadata", '{"id":"1"}')
            there = json.dumps({"add": {"path": f"{workspace.uri('other')}/part-0.parquet"}})
            put(workspace, path, content or there)  # noqa: B023 - the attempt ends within this turn
            return Made(said="")

        reason = failed(world.run(world.task(body)))

        assert f"the task wrote {path}: {kind}, which names files by absolute paths" in reason
        assert reason.endswith(alternative)
    assert world.head().id == a


def test_files_of_a_user_that_only_look_like_those_formats_are_published(world: SparkWorld) -> None:
    mine = {
        "t/_spark_metadata.txt": "mine",
        "c/offsets/0": "no metadata beside it",
        "t/metadata/song.metadata.json": '{"title": "So What"}',
        "t/.hoodie/hoodie.properties": "colour=red",
        "u/.hoodie/notes.txt": "hoodie.table.name=t",
        "t/_delta_log/00000000000000000000.json": json.dumps({"add": {"path": "part-0.parquet"}}),
    }

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        for path, content in mine.items():
            put(workspace, path, content)
        return Made(said="")

    published_ref(world.run(world.task(body)))

    assert {f"data/{path}" for path in mine} <= set(world.paths())
