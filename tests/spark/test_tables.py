"""Formats: whatever the session knows is read and written, and of what it does not know the setting is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from pydantic import BaseModel

from perago import GuardrailViolation, SparkWorkspace, TaskFailed, require_rows
from perago.declare.checks import FolderTree, run_checks
from perago.spark.session import Sessions
from perago.spark.table_audit import AuditedTree, Auditor


class Named(BaseModel):
    id: int
    name: str | None


@pytest.fixture
def workspace(sessions: Sessions, tmp_path: Path) -> SparkWorkspace:
    return SparkWorkspace(tmp_path, sessions.get())


def test_a_format_that_only_spark_knows_is_written_read_and_compared_with_a_schema(
    workspace: SparkWorkspace,
) -> None:
    rows = workspace.spark.sql("SELECT 1L AS id, 'one' AS name")

    workspace.write(rows, "table", format="xml", rowTag="row")
    workspace.write(rows, "table", format="XML", mode="append", rowTag="row")

    read = workspace.read("table", format="xml", schema=Named, rowTag="row")
    assert [tuple(row) for row in read.collect()] == [(1, "one")] * 2


def test_a_data_source_of_a_python_package_is_read(workspace: SparkWorkspace) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class Reader(DataSourceReader):
        def read(self, partition):
            yield (7,)

    class Sevens(DataSource):
        @classmethod
        def name(cls):
            return "sevens"

        def schema(self):
            return "id bigint"

        def reader(self, schema):
            return Reader()

    workspace.spark.dataSource.register(Sevens)

    assert [tuple(row) for row in workspace.read("anywhere", format="sevens").collect()] == [(7,)]


@pytest.mark.parametrize(
    ("format", "setting"),
    [
        ("delta", "io.delta:delta-spark_4.3_2.13:VERSION;spark.sql.extensions=io.delta.sql."),
        ("avro", "org.apache.spark:spark-avro_2.13:VERSION'"),
        ("nosuch", "GROUP:NAME:VERSION'"),
    ],
)
def test_a_format_that_the_session_does_not_know_is_told_with_the_setting_that_adds_it(
    workspace: SparkWorkspace, sessions: Sessions, format: str, setting: str
) -> None:
    workspace.write(workspace.spark.range(1), "table")
    folder = Path(workspace.base.removeprefix("file://"))
    check = require_rows("table", format=format)
    tree = AuditedTree(FolderTree(folder), Auditor(workspace, sessions.for_checks, [check]))

    with pytest.raises(TaskFailed) as reading:
        workspace.read("table", format=format)
    with pytest.raises(TaskFailed) as writing:
        workspace.write(workspace.spark.range(1), "new", format=format)
    with pytest.raises(GuardrailViolation) as checking:
        run_checks("post", [check], tree)

    for doing, caught in {
        "reading": reading,
        "writing": writing,
        "the table cannot be read": checking,
    }.items():
        text = str(caught.value)
        assert doing in text
        assert f"this Spark session does not know the format {format!r}; " in text
        assert f"PERAGO_SPARK_CONF='spark.jars.packages={setting}" in text
        assert "\n" not in text


@pytest.mark.parametrize("format", [None, "", " ", 7])
def test_a_format_without_a_name_is_refused(workspace: SparkWorkspace, format: Any) -> None:
    with pytest.raises(TaskFailed, match="must be the name of a format, such as 'parquet'"):
        workspace.read("table", format=format)


def test_an_error_that_is_not_about_the_format_keeps_its_own_words(workspace: SparkWorkspace) -> None:
    with pytest.raises(TaskFailed, match=r"reading table 'none' failed: .*PATH_NOT_FOUND"):
        workspace.read("none", format="orc")


def test_a_folder_with_a_delta_log_is_not_taken_for_plain_files(workspace: SparkWorkspace) -> None:
    workspace.write(workspace.spark.range(3), "table")
    log = Path(workspace.base.removeprefix("file://")) / "table" / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("{}")

    with pytest.raises(GuardrailViolation, match="reading table 'table': it is a Delta table, not parquet"):
        workspace.read("table")
    with pytest.raises(GuardrailViolation, match="writing table 'table': it is a Delta table, not csv"):
        workspace.write(workspace.spark.range(1), "table", format="csv")
    assert len(list(log.parent.glob("*.parquet"))) > 0


@pytest.mark.parametrize(
    ("rows", "mode", "says"),
    [
        (
            None,
            "overwrite_partition",
            "there is no mode 'overwrite_partition'; did you mean 'overwrite_partitions'?",
        ),
        (None, None, "there is no mode None"),
        ([1], "overwrite", "there is a list to write, not a DataFrame of Spark; make one with"),
        (
            pandas.DataFrame({"id": [1]}),
            "append",
            "there is a pandas.DataFrame to write, not a DataFrame of Spark",
        ),
    ],
)
def test_what_cannot_be_written_is_named(workspace: SparkWorkspace, rows: Any, mode: Any, says: str) -> None:
    with pytest.raises(GuardrailViolation) as refused:
        workspace.write(workspace.spark.range(1) if rows is None else rows, "table", mode=mode)

    assert str(refused.value).startswith(f"writing table 'table': {says}")


def test_a_mode_is_known_in_capitals_too(workspace: SparkWorkspace) -> None:
    rows = workspace.spark.sql("SELECT 1 AS day, 'a' AS value")
    for mode in ("OVERWRITE", "Overwrite_Partitions"):
        workspace.write(rows, "table", partition_by="day", mode=mode)  # type: ignore[arg-type]

    assert workspace.read("table").count() == 1
