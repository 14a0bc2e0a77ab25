"""`mode="overwrite_partitions"`: exactly the partitions of the rows are replaced, with both placements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, functions

from perago import SparkWorkspace
from perago.errors import GuardrailViolation
from perago.spark.session import Sessions
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

DAYS = ("day",)


def table(workspace: SparkWorkspace, rows: str, columns: str = "day, value") -> DataFrame:
    return workspace.spark.sql(f"SELECT * FROM VALUES {rows} AS t({columns})").coalesce(1)


def days(world: SparkWorld) -> list[tuple[Any, str]]:
    return sorted(((row["day"], row["value"]) for row in world.rows("data/days")), key=str)


def body(
    rows: str,
    *,
    by: Sequence[str] = DAYS,
    columns: str = "day, value",
    mode: Any = "overwrite_partitions",
    format: str = "parquet",
) -> Any:
    def write(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.write(table(workspace, rows, columns), "days", format, by, mode)
        return Made(said="done")

    return write


def test_exactly_the_partitions_of_the_rows_are_replaced(world: SparkWorld) -> None:
    published_ref(world.run(world.task(body("(1, 'a'), (1, 'b'), (2, 'c'), (3, 'd')", mode="overwrite"))))
    before = {path for path in world.paths() if "day=1" in path or "day=3" in path}

    published_ref(world.run(world.task(body("(2, 'new'), (4, 'e')"), name="again")))

    assert days(world) == [
        (1, "a"),
        (1, "b"),
        (2, "new"),
        (3, "d"),
        (4, "e"),
    ]
    assert before <= set(world.paths())
    assert not [path for path in world.paths() if ".spark-staging" in path or path.endswith("_SUCCESS")]


def test_a_second_run_with_the_same_rows_gives_the_same_table(world: SparkWorld) -> None:
    rows = "(1, 'a'), (2, 'b'), (NULL, 'n')"
    published_ref(world.run(world.task(body(rows))))
    once = days(world)

    published_ref(world.run(world.task(body(rows), name="again")))

    assert days(world) == once
    assert len(once) == 3


HOSTILE = ["a b", "x=1", "a/b", "50%", "ü", "..", "a:b", "'q'", "__HIVE__", "2026-11-16 10:00:00"]


def test_partitions_with_names_that_need_escaping_are_replaced_too(local_world: SparkWorld) -> None:
    def rows(value: str) -> str:
        return ", ".join(f'("{day}", "{value}")' for day in HOSTILE)

    published_ref(local_world.run(local_world.task(body(rows("old")))))
    published_ref(local_world.run(local_world.task(body(rows("new")), name="again")))

    assert days(local_world) == sorted(((day, "new") for day in HOSTILE), key=str)


def test_several_partition_columns_and_a_text_format(world: SparkWorld) -> None:
    columns, by = "day, region, value", ("day", "region")
    first = body("(1, 'eu', 'a'), (1, 'us', 'b')", by=by, columns=columns, format="json")
    second = body("(1, 'eu', 'new')", by=by, columns=columns, format="json")
    published_ref(world.run(world.task(first)))

    published_ref(world.run(world.task(second, name="again")))

    kept = [path for path in world.paths() if path.startswith("data/days/")]
    assert len(kept) == 2
    assert len([path for path in kept if "day=1/region=us" in path]) == 1


def test_the_spelling_of_a_column_makes_no_other_partitions(local_world: SparkWorld) -> None:
    published_ref(local_world.run(local_world.task(body("(1, 'a'), (2, 'b')", by=("Day",)))))
    published_ref(local_world.run(local_world.task(body("(1, 'new')", by=("DAY",)), name="again")))

    assert sorted(row["value"] for row in local_world.rows("data/days")) == ["b", "new"]


def test_without_rows_nothing_is_replaced(local_world: SparkWorld) -> None:
    published_ref(local_world.run(local_world.task(body("(1, 'a')"))))
    head = local_world.head().id

    def nothing(workspace: SparkWorkspace, params: Params) -> Made:
        empty = table(workspace, "(1, 'x')").where("day > 1")
        workspace.write(empty, "days", partition_by=DAYS, mode="overwrite_partitions")
        return Made(said="done")

    published_ref(local_world.run(local_world.task(nothing, name="again")))

    assert local_world.head().id == head


def test_a_table_may_be_read_and_some_of_its_partitions_replaced(world: SparkWorld) -> None:
    published_ref(world.run(world.task(body("(1, 'a'), (2, 'b')"))))

    def update(workspace: SparkWorkspace, params: Params) -> Made:
        changed = workspace.read("days").where("day = 2").selectExpr("upper(value) AS value", "day")
        workspace.write(changed, "days", partition_by=DAYS, mode="overwrite_partitions")
        return Made(said="done")

    published_ref(world.run(world.task(update, name="again")))

    assert days(world) == [(1, "a"), (2, "B")]


def test_the_body_sees_observed_figures_of_the_write(sessions: Sessions, tmp_path: Path) -> None:
    workspace = SparkWorkspace(tmp_path, sessions.get().newSession())
    seen = Observation("seen")
    workspace.spark.range(3).createOrReplaceTempView("numbers")

    rows = workspace.spark.sql("SELECT id AS day, 'a' AS value FROM numbers").observe(
        seen, functions.count("*").alias("rows")
    )
    workspace.write(rows, "days", partition_by=DAYS, mode="overwrite_partitions")

    assert seen.get == {"rows": 3}


def test_it_stays_within_what_the_task_may_write(world: SparkWorld) -> None:
    published_ref(world.run(world.task(body("(1, 'a'), (2, 'b')"))))
    head, declared = world.head().id, {"reads": ("days",), "writes": ("days/day=2",)}

    reason = failed(world.run(world.task(body("(1, 'x'), (2, 'y')"), name="both", **declared)))
    assert "days/day=1" in reason
    assert "outside what it may change (days/day=2)" in reason
    assert world.head().id == head

    published_ref(world.run(world.task(body("(2, 'y')"), name="one", **declared)))
    assert days(world) == [(1, "a"), (2, "y")]


@pytest.mark.parametrize(
    ("write", "says"),
    [
        ({"partition_by": ()}, 'needs the columns by which the table is partitioned: partition_by="day"'),
        ({"partition_by": "value"}, "the table is partitioned by day, not partitioned by value"),
        (
            {"partition_by": DAYS, "path": "hidden"},
            "the table is partitioned by _hour, not partitioned by day",
        ),
        ({"partition_by": DAYS, "path": "flat"}, "the table is not partitioned, not partitioned by day"),
        ({"partition_by": DAYS, "partitionOverwriteMode": "static"}, "contradicts mode="),
        ({"partition_by": DAYS, "format": "nosuch"}, "works for "),
        (
            {"partition_by": DAYS, "spark.sql.parquet.output.committer.class": "org.example.Other"},
            "partitions are replaced with Spark's FileOutputCommitter only; leave it out",
        ),
    ],
)
def test_what_would_lay_new_files_beside_old_ones_is_refused(
    sessions: Sessions, tmp_path: Path, write: dict[str, Any], says: str
) -> None:
    workspace = SparkWorkspace(tmp_path, sessions.get())
    workspace.write(table(workspace, "(1, 'a')"), "days", partition_by=DAYS)
    workspace.write(table(workspace, "(1, 'a')"), "flat")
    workspace.write(table(workspace, "(1, 'a')", "_hour, value"), "hidden", partition_by="_hour")

    with pytest.raises(GuardrailViolation) as refused:
        workspace.write(
            table(workspace, "(1, 'b')"), write.pop("path", "days"), mode="overwrite_partitions", **write
        )

    assert says in str(refused.value)


@pytest.mark.parametrize("format", ["parquet", "json"])
@pytest.mark.parametrize(
    ("table_by", "by", "says"),
    [
        (["day"], [], 'rows beside its partitions could not be read; say partition_by="day"'),
        (["day", "hour"], [], 'could not be read; say partition_by=["day", "hour"]'),
        (["day"], ["hour"], "the table is partitioned by day, not partitioned by hour"),
        (["day"], ["day", "hour"], "the table is partitioned by day, not partitioned by day, hour"),
        ([], ["day"], "the table is not partitioned, not partitioned by day"),
    ],
)
def test_rows_are_appended_only_by_the_partitions_of_the_table(
    sessions: Sessions, tmp_path: Path, format: str, table_by: list[str], by: list[str], says: str
) -> None:
    workspace = SparkWorkspace(tmp_path, sessions.get())
    rows = table(workspace, "(1, 2, 'a')", "day, hour, value")
    workspace.write(rows, "days", format, table_by)

    with pytest.raises(GuardrailViolation) as refused:
        workspace.write(rows, "days", format, by, mode="append")
    # Spells the columns as the table does.
    workspace.write(rows, "days", format, [name.upper() for name in table_by], mode="append")

    assert says in str(refused.value)
    assert workspace.read("days", format).count() == 2
    assert len({file.parent for file in tmp_path.rglob("part-*")}) == 1


def test_a_dynamic_overwrite_keeps_to_the_partitions_of_the_table_too(
    sessions: Sessions, tmp_path: Path
) -> None:
    workspace = SparkWorkspace(tmp_path, sessions.get())
    rows, dynamic = table(workspace, "(1, 'a')"), {"partitionOverwriteMode": "dynamic"}
    workspace.write(rows, "days", partition_by="day")

    with pytest.raises(GuardrailViolation, match="the table is partitioned by day, not partitioned by value"):
        workspace.write(rows, "days", partition_by="value", **dynamic)
    workspace.write(rows, "days", **dynamic)  # without partitions, Spark replaces the whole table

    assert workspace.read("days").columns == ["day", "value"]
