"""Partitions of Spark tasks: folders have the names that Spark gives them, and a task keeps to its own."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions

from perago import SparkWorkspace, WorkspaceSpec, require_glob, require_rows
from perago.protocol.partitions import CannotFill, escaped, filling
from perago.spark.session import Sessions
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

HOSTILE = [
    *(
        "eu",
        "a b",
        " a ",
        "x=1",
        "a/b",
        "50%",
        "%2F",
        "ü",
        "😀",
        "a:b",
        "'q'",
        '"q"',
        "a*b",
        "a?b",
        "[a]",
        "a{b",
        "a^b",
    ),
    *(
        "a#b",
        "a\\b",
        "a+b&c",
        "~a",
        "-",
        "a.",
        "a_",
        "$HOME",
        "a|b",
        "<a>",
        "a;b,c",
        "`a`",
        "(a)",
        "!a",
        "@a",
        "A",
    ),
    *("x" * 200, "ü" * 100, "2026-01-02 10:00:00"),
]
WRITTEN_OTHERWISE = [
    "a}b",
    ".hidden",
    "_hidden",
    "..",
    "a\tb",
    "a\nb",
    "a\x7fb",
]
"""Values that Spark writes, and that no param may have."""


def folders(sessions: Sessions, path: Path, rows: list[Any], kind: str) -> set[str]:
    """Return the names that Spark gives the partitions of these values."""
    frame = sessions.get().createDataFrame([(row, "value") for row in rows], f"part {kind}, value string")
    frame.coalesce(1).write.partitionBy("part").csv(str(path))
    return {folder.name.removeprefix("part=") for folder in path.glob("part=*")}


def test_every_character_is_escaped_as_spark_does_it(sessions: Sessions) -> None:
    jvm: Any = sessions.get().sparkContext._jvm
    spark = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.escapePathName
    every = "".join(map(chr, [*range(1, 0x500), 0x2028, 0xFEFF, 0xFFFD, 0x1F600]))

    assert escaped(every) == spark(every)
    assert [escaped(one) for one in every[:0x100]] == [spark(one) for one in every[:0x100]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", HOSTILE),
        ("int", [0, 7, -7, 2**31 - 1]),
        ("bigint", [-(2**63), 2**63 - 1]),
        ("date", [date(2026, 1, 2), date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)]),
    ],
)
def test_a_filled_value_is_the_name_of_sparks_folder(
    sessions: Sessions, tmp_path: Path, kind: str, values: list[Any]
) -> None:
    assert folders(sessions, tmp_path / "table", values, kind) == {filling(value) for value in values}


def test_no_value_is_filled_like_a_folder_that_means_something_else(
    sessions: Sessions, tmp_path: Path
) -> None:
    found = folders(sessions, tmp_path / "table", WRITTEN_OTHERWISE, "string")

    null = folders(sessions, tmp_path / "nulls", [""], "string")

    assert found == set(map(escaped, WRITTEN_OTHERWISE))
    assert null == {"__HIVE_DEFAULT_PARTITION__"}
    for value in [*WRITTEN_OTHERWISE, *null, "", None]:
        with pytest.raises(CannotFill):
            filling(value)


DAILY: dict[str, Any] = {
    "reads": ("raw/day={text}",),
    "writes": ("days/day={text}",),
    "post": [require_rows("days/day={text}", min=1, max=1), require_glob("days/day={text}/*.parquet")],
}


def clean(workspace: SparkWorkspace, params: Params) -> Made:
    """Replace the attempt's partition of a table."""
    [raw] = WorkspaceSpec(reads=DAILY["reads"]).filled(params).reads or ()
    rows = workspace.read(raw).withColumn("day", functions.lit(params.text))
    workspace.write(rows.coalesce(1), "days", partition_by="day", mode="overwrite_partitions")
    return Made(said=raw)


def write_raw(world: SparkWorld, values: list[str]) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.createDataFrame(
            [(value, f"of {value}") for value in values], "day string, value string"
        )
        workspace.write(rows.coalesce(1), "raw", partition_by="day")
        workspace.write(rows.selectExpr("day", "'old' AS value").coalesce(1), "days", partition_by="day")
        return Made(said="")

    published_ref(world.run(world.task(body, name="raw")))


def test_a_task_replaces_its_own_partition_of_a_table(world: SparkWorld) -> None:
    values = ["a b", "x=1", "a/b", "50%", "a:b'#", "eu"]
    write_raw(world, values)
    before = set(world.paths())
    done = values[1:5]

    for number, value in enumerate(done):
        task = world.task(clean, name=f"clean{number}", **DAILY)
        result = world.run(task, text=value)
        published_ref(result)
        assert json.loads(world.head().metadata["perago.writes"]) == [f"data/days/day={escaped(value)}"]

    found = {path.rpartition("/")[0] for path in world.paths() if path.startswith("data/days/")}
    assert found == {f"data/days/day={escaped(value)}" for value in values}
    kept = {path for path in before if "/day=a b/" in path or "/day=eu/" in path}
    assert kept <= set(world.paths())
    rows = [(row["day"], row["value"]) for row in world.rows("data/days")]
    assert sorted(rows) == sorted((value, f"of {value}" if value in done else "old") for value in values)


def test_rows_of_another_partition_fail_the_attempt(world: SparkWorld) -> None:
    write_raw(world, ["eu", "us"])
    head = world.head().id

    def stray(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.createDataFrame([("eu", "x"), ("us", "x")], "day string, value string")
        workspace.write(rows.coalesce(1), "days", partition_by="day", mode="overwrite_partitions")
        return Made(said="")

    reason = failed(world.run(world.task(stray, **DAILY), text="eu"))

    assert "days/day=us" in reason
    assert "outside what it may change (days/day=eu)" in reason
    assert world.head().id == head


def test_another_partition_cannot_be_read(world: SparkWorld) -> None:
    write_raw(world, ["eu", "us"])

    def nosy(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.read("raw/day=us")
        return Made(said="")

    reason = failed(world.run(world.task(nosy, **DAILY), text="eu"))

    assert "it is outside what the task sees (days/day=eu, raw/day=eu)" in reason
