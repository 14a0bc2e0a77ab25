"""Reading and writing tables, with a schema where one is declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perago.errors import GuardrailViolation
from perago.spark.formats import FILES, WITHOUT_A_SCHEMA, check_format, known_name
from perago.spark.parquet_footer import first_file, parquet_schema, stored_schema
from perago.spark.s3a import make_room
from perago.spark.schema import TableSchema, declared, differences, other_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def read_table(
    spark: SparkSession, uri: str, format: str, schema: TableSchema | None, options: Mapping[str, Any]
) -> DataFrame:
    """The table at `uri`; a Parquet table that Spark wrote is opened without a Spark job."""
    format = known_name(format)
    check_format(spark, uri, format)
    if schema is None:
        return _opened(spark, uri, format, options)[0]
    wanted = declared(schema)
    names = [field.name for field in wanted.struct.fields]
    if format not in WITHOUT_A_SCHEMA:
        table, without_nulls = _opened(spark, uri, format, options)
        wrong = differences(
            wanted, table.schema, lambda name: name in without_nulls and not without_nulls[name]
        )
        if not wrong:
            return table.select(*names)
    else:
        wrong = _wrong_header(spark, uri, names, options) if format == "csv" else []
        if not wrong:
            return spark.read.format(format).options(**options).schema(wanted.struct).load(uri)
    raise GuardrailViolation("it is not as declared: " + "; ".join(wrong))


def write_table(
    df: DataFrame,
    uri: str,
    format: str,
    partition_by: Sequence[str],
    mode: str,
    schema: TableSchema | None,
    options: Mapping[str, Any],
) -> None:
    """Write a table; columns that the schema declares without nulls are written as such.

    Rows that are appended must have the column types of the files that are there.
    """
    format = known_name(format)
    check_format(df.sparkSession, uri, format, writing=True)
    if schema is not None:
        df = _as_declared(df, schema)
    if mode == "append" and format in FILES - WITHOUT_A_SCHEMA:
        _check_types(df, uri, format)
    if mode == "overwrite" and format in FILES and not _only_partitions(df.sparkSession, options):
        make_room(df.sparkSession, uri)
    writer = df.write.format(format).mode(mode).options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(uri)


def _check_types(df: DataFrame, uri: str, format: str) -> None:
    """Refuse rows whose column types are not those of the table's files, before any work."""
    file = first_file(df.sparkSession, uri)
    wrong = other_types(df.schema, stored_schema(df.sparkSession, file, format)) if file is not None else []
    if wrong:
        raise GuardrailViolation(f"{'; '.join(wrong)}; cast the columns, or overwrite the whole table")


def _opened(
    spark: SparkSession, uri: str, format: str, options: Mapping[str, Any]
) -> tuple[DataFrame, dict[str, bool]]:
    """The table, and for each column whose nullability is stored whether it is without nulls."""
    reader = spark.read.format(format).options(**options)
    merged = str(options.get("mergeSchema", "")).lower() == "true"
    file = first_file(spark, uri) if format == "parquet" and not merged else None
    stored = parquet_schema(spark, file) if file is not None else None
    if stored is None:
        return reader.load(uri), {}
    return reader.schema(stored).load(uri), {field.name: not field.nullable for field in stored.fields}


def _wrong_header(
    spark: SparkSession, uri: str, names: Sequence[str], options: Mapping[str, Any]
) -> list[str]:
    """How the first line of a CSV table with a header differs from the declared columns, which Spark takes by place."""
    if str(options.get("header", "")).lower() != "true":
        return []
    plain = {key: value for key, value in options.items() if key.lower() != "inferschema"}
    found = spark.read.format("csv").options(**plain).load(uri).columns
    if list(found) == list(names):
        return []
    missing = [f"column {name!r} is missing" for name in names if name not in found]
    extra = [f"column {name!r} is not declared" for name in found if name not in names]
    return missing + extra or [f"the columns come as {', '.join(found)}, declared {', '.join(names)}"]


def _only_partitions(spark: SparkSession, options: Mapping[str, Any]) -> bool:
    """Whether an overwrite replaces only the partitions that are written."""
    chosen = options.get("partitionOverwriteMode") or spark.conf.get(
        "spark.sql.sources.partitionOverwriteMode"
    )
    return str(chosen).lower() == "dynamic"


def _as_declared(df: DataFrame, schema: TableSchema) -> DataFrame:
    wanted = declared(schema)
    wrong = differences(wanted, df.schema, lambda _name: False)
    if wrong:
        raise GuardrailViolation("it is not as declared: " + "; ".join(wrong))
    nullable = {field.name for field in df.schema.fields if field.nullable}
    names = [field.name for field in wanted.struct.fields]
    further = [name for name in df.columns if name not in names]
    required = {field.name for field in wanted.struct.fields if not field.nullable}
    columns = [
        _never_null(df, name) if name in required & nullable else df[name] for name in [*names, *further]
    ]
    return df.select(*columns)


def _never_null(df: DataFrame, name: str) -> Column:
    """The column, declared without nulls; Spark has this expression, and no Python name for it."""
    from pyspark.sql import Column

    jvm: Any = df.sparkSession._jvm
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    column: Any = df[name]
    asserted = jvm.org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull(
        bridge.expression(column._jc), jvm.PythonUtils.toSeq([name])
    )
    return Column(bridge.column(asserted)).alias(name)
