"""Tables with a declared schema: they fit, or the error lists every difference, before any work."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from perago import GuardrailViolation, SparkWorkspace, TaskDefinitionError, TaskFailed
from perago.spark.schema import declared_schema
from perago.spark.session import Sessions
from tests.support.worlds.spark_world import jobs_run


class Play(BaseModel):
    user: str
    ms: int
    device: str | None


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    user: str | None


@pytest.fixture
def workspace(sessions: Sessions, tmp_path: Path) -> SparkWorkspace:
    return SparkWorkspace(tmp_path, sessions.get())


def rows(workspace: SparkWorkspace, sql: str):
    return workspace.spark.sql(sql).coalesce(1)


GOOD = "SELECT * FROM VALUES ('ann', 10, NULL), ('bob', 20, 'phone') AS t(user, ms, device)"


def test_a_table_written_with_a_model_is_read_with_it(workspace: SparkWorkspace) -> None:
    workspace.write(rows(workspace, GOOD), "plays", schema=Play)

    found = workspace.read("plays", schema=Play).orderBy("user").collect()

    assert [tuple(row) for row in found] == [("ann", 10, None), ("bob", 20, "phone")]


def test_every_difference_is_listed(workspace: SparkWorkspace) -> None:
    wrong = "SELECT * FROM VALUES ('ann', '10', 1), (NULL, '20', 2) AS t(user, ms, extra)"
    workspace.write(rows(workspace, wrong), "plays")

    with pytest.raises(GuardrailViolation) as caught:
        workspace.read("plays", schema=Play)

    assert str(caught.value) == (
        "reading table 'plays': it is not as declared: column 'user' may hold nulls, declared without; "
        "column 'ms' is string, declared bigint; column 'device' (string) is missing; "
        "column 'extra' (int) is not declared"
    )


def test_differences_are_found_without_a_spark_job(workspace: SparkWorkspace, sessions: Sessions) -> None:
    workspace.write(rows(workspace, "SELECT 1 AS other"), "plays")
    before = jobs_run(sessions)

    with pytest.raises(GuardrailViolation):
        workspace.read("plays", schema=Play)

    assert jobs_run(sessions) == before


def test_a_null_where_none_is_declared_fails_the_write(workspace: SparkWorkspace) -> None:
    nulls = "SELECT * FROM VALUES (NULL, 10, 'phone') AS t(user, ms, device)"
    with pytest.raises(TaskFailed, match=r"writing table 'plays' failed: .*NOT_NULL_ASSERT_VIOLATION.*user"):
        workspace.write(
            rows(workspace, nulls).selectExpr("CAST(user AS STRING)", "ms", "device"), "plays", schema=Play
        )


def test_a_struct_type_is_taken_word_for_word(workspace: SparkWorkspace) -> None:
    workspace.write(rows(workspace, "SELECT CAST(1 AS BIGINT) AS n"), "numbers")
    wide = StructType([StructField("n", LongType())])
    narrow = StructType([StructField("n", IntegerType())])

    assert workspace.read("numbers", schema=wide).count() == 1
    with pytest.raises(GuardrailViolation, match="column 'n' is bigint, declared int"):
        workspace.read("numbers", schema=narrow)


def test_a_model_with_extra_allowed_takes_further_columns(workspace: SparkWorkspace) -> None:
    workspace.write(rows(workspace, GOOD), "plays")

    assert workspace.read("plays", schema=Open).columns == ["user"]


def test_partition_columns_are_part_of_the_table(workspace: SparkWorkspace) -> None:
    workspace.write(rows(workspace, GOOD), "plays", partition_by=["user"], schema=Play)

    assert workspace.read("plays", schema=Play).where("user = 'ann'").count() == 1


class Zip(BaseModel):
    code: str
    since: str | None
    n: int


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_partition_columns_have_their_declared_types(workspace: SparkWorkspace, format: str) -> None:
    zips = [Zip(code="007", since="2026-11-16", n=1), Zip(code="08", since=None, n=2)]
    by = ["code", "since"]
    workspace.write(workspace.from_models(zips, Zip), "zips", format, by, schema=Zip)

    assert sorted(workspace.to_models(workspace.read("zips", format, schema=Zip), Zip), key=str) == zips
    # Without a schema, Spark guesses from the folders' names, as always.
    assert dict(workspace.read("zips", format).dtypes)["code"] == "int"

    class Number(Zip):
        since: int | None  # type: ignore[assignment]

    with pytest.raises(GuardrailViolation, match="column 'since' is date, declared bigint"):
        workspace.read("zips", format, schema=Number)


def test_rows_are_appended_with_the_types_of_columns_whatever_their_case(workspace: SparkWorkspace) -> None:
    workspace.write(rows(workspace, "SELECT 1 AS n"), "numbers")

    with pytest.raises(GuardrailViolation, match="column 'N' is string, and int in files that stay"):
        workspace.write(rows(workspace, "SELECT 'x' AS N"), "numbers", mode="append")


def test_columns_with_dots_and_quotes_are_taken_literally(workspace: SparkWorkspace) -> None:
    odd = StructType([StructField(name, IntegerType(), nullable=False) for name in ("a.b", "x`y", "ü z")])
    workspace.write(rows(workspace, "SELECT 1 AS `a.b`, 2 AS `x``y`, 3 AS `ü z`"), "odd", schema=odd)

    assert [tuple(row) for row in workspace.read("odd", schema=odd).collect()] == [(1, 2, 3)]


def test_csv_is_read_as_declared_and_its_header_must_fit(workspace: SparkWorkspace, tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,ms,device\nann,10,\nbob,x,phone\n")

    found = workspace.read("plays.csv", format="csv", schema=Play, header=True).orderBy("user").collect()

    assert [tuple(row) for row in found] == [("ann", 10, None), ("bob", None, "phone")]
    (tmp_path / "plays.csv").write_text("user,device\nann,\n")
    with pytest.raises(GuardrailViolation, match="column 'ms' is missing"):
        workspace.read("plays.csv", format="csv", schema=Play, header=True)


def test_a_table_of_another_writer_is_read_by_spark(workspace: SparkWorkspace, tmp_path: Path) -> None:
    (tmp_path / "plays").mkdir()
    (tmp_path / "plays" / "a.json").write_text('{"user": "ann", "ms": 10}\n')

    assert workspace.read("plays", format="json").columns == ["ms", "user"]


class Inner(BaseModel):
    name: str


class Everything(BaseModel):
    flag: bool
    number: int
    ratio: float
    text: str
    kind: Literal["a", "b"]
    data: bytes
    price: Decimal
    at: datetime.datetime
    day: datetime.date
    items: list[int]
    named: dict[str, float]
    inner: Inner
    maybe: str | None = None


def test_every_type_of_a_model_has_its_column_type() -> None:
    found = {
        field.name: (field.dataType.simpleString(), field.nullable)
        for field in declared_schema(Everything).struct
    }

    assert found == {
        "flag": ("boolean", False),
        "number": ("bigint", False),
        "ratio": ("double", False),
        "text": ("string", False),
        "kind": ("string", False),
        "data": ("binary", False),
        "price": ("decimal(38,18)", False),
        "at": ("timestamp", False),
        "day": ("date", False),
        "items": ("array<bigint>", False),
        "named": ("map<string,double>", False),
        "inner": ("struct<name:string>", False),
        "maybe": ("string", True),
    }


def test_a_value_that_is_no_schema_is_refused_by_name() -> None:
    with pytest.raises(TaskDefinitionError, match="must be a pydantic model or a StructType"):
        declared_schema({"user": "string"})

    class Odd(BaseModel):
        either: int | str

    with pytest.raises(TaskDefinitionError, match=r"Odd\.either: .* has no column type in Spark"):
        declared_schema(Odd)
    assert declared_schema(StructType([StructField("a", StringType())])).exact


class Priced(BaseModel):
    price: Decimal = Field(max_digits=15, decimal_places=2)
    rate: Annotated[Decimal, Field(max_digits=5, decimal_places=4)] | None
    parts: list[Annotated[Decimal, Field(max_digits=9, decimal_places=0)]]
    any: Decimal


def test_digits_and_places_of_a_decimal_are_those_of_its_column(workspace: SparkWorkspace) -> None:
    fields = {field.name: field.dataType.simpleString() for field in declared_schema(Priced).struct}
    assert fields == {
        "price": "decimal(15,2)",
        "rate": "decimal(5,4)",
        "parts": "array<decimal(9,0)>",
        "any": "decimal(38,18)",
    }
    rest = "CAST(1 AS DECIMAL(5,4)) AS rate, array(CAST(1 AS DECIMAL(9))) AS parts, 1.5BD AS any"
    good = rows(workspace, f"SELECT CAST(1 AS DECIMAL(15,2)) AS price, {rest}")
    workspace.write(good, "priced", schema=Priced)
    assert workspace.read("priced", schema=Priced).first().price == Decimal("1.00")

    with pytest.raises(
        GuardrailViolation, match=r"column 'price' is decimal\(2,1\), declared decimal\(15,2\)"
    ):
        workspace.write(rows(workspace, f"SELECT 1.5BD AS price, {rest}"), "priced", schema=Priced)


@pytest.mark.parametrize(
    "wrong",
    [{"max_digits": 15}, {"decimal_places": 2}, {"max_digits": 39, "decimal_places": 2}],
)
def test_a_decimal_that_no_column_can_hold_is_refused_by_name(wrong: dict[str, int]) -> None:
    class Odd(BaseModel):
        price: Decimal = Field(**wrong)

    with pytest.raises(TaskDefinitionError, match=r"Odd\.price: .* both max_digits"):
        declared_schema(Odd)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_rows_of_another_type_are_not_appended(workspace: SparkWorkspace, format: str) -> None:
    def amounts(kind: str):
        return rows(workspace, f"SELECT 1 AS id, CAST(1 AS {kind}) AS amount, 'new' AS extra")

    workspace.write(amounts("DECIMAL(38,18)").drop("extra"), "amounts", format=format)
    for kind in ("DECIMAL(15,2)", "DECIMAL(38,10)", "BIGINT"):
        with pytest.raises(GuardrailViolation, match=r"column 'amount' is .*, and decimal\(38,18\) in files"):
            workspace.write(amounts(kind), "amounts", format=format, mode="append")

    workspace.write(amounts("DECIMAL(38,18)"), "amounts", format=format, mode="append")
    assert workspace.read("amounts", format=format).count() == 2
    workspace.write(amounts("BIGINT"), "amounts", format=format)
    assert workspace.read("amounts", format=format).count() == 1
