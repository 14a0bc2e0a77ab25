"""Reads and writes tables, with a declared schema if there is one.

    format                          its schema is               an overwrite
    csv  json  text  xml            supplied by the reader      empties the folder (Spark)
    avro  orc  parquet              in the files                empties the folder (Spark)
    delta, and any other            in the table                is handled by the format's package

A Delta table is a folder of Parquet files with a log that says which of them are valid.  Reading it as Parquet would
return rows deleted long ago, and overwriting it as Parquet would destroy it.  So any use other than as a Delta table is
rejected.

Parquet files written by Spark contain their schema, with nullability, in the footer.  Reading one footer directly
saves a Spark job.  Files from another writer or in another format need that job.

All files of a table must have the same column types.  Spark reads a table with one schema, so a decimal(15,2) next to a
decimal(38,18) makes the column unreadable for every later reader.  `check_new_files` covers everything that an
attempt is about to publish, however it was written: appended, by partition, through the workspace or not.  Delta tables
are skipped, because Delta manages its own files.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from perago.errors import GuardrailViolation, PostGuardrailViolation
from perago.protocol.changes import Changes
from perago.protocol.paths import has_wildcard
from perago.protocol.suggestions import did_you_mean
from perago.spark.direct_commits import PROTOCOL_KEY, commits_directly
from perago.spark.failures import SPARK_ERRORS, all_messages
from perago.spark.paths import DELTA_LOG
from perago.spark.s3a import delete_before_overwrite
from perago.spark.schema import DeclaredSchema, TableSchema, declared_schema, differences, type_conflicts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrameReader, SparkSession


log = logging.getLogger("perago.spark")

WITHOUT_A_SCHEMA = frozenset({"csv", "json", "text", "xml"})
FILES = WITHOUT_A_SCHEMA | {"avro", "orc", "parquet"}
DELTA = "delta"
MODES = ("overwrite", "overwrite_partitions", "append", "error", "errorifexists", "ignore")

_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:VERSION",
    "delta": "io.delta:delta-spark_{minor}_2.13:VERSION",
}
_MORE = {
    "delta": ";spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
    ";spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
}
_NOT_FOUND = ("[DATA_SOURCE_NOT_FOUND]", "Failed to find data source")
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_PART = re.compile(r"(?P<table>(?:.*?/)?)(?:[^/=]+=[^/]*/)*part-\d{5}[^/]*\.(?P<format>parquet|orc|avro)")
_SPARK_PART = re.compile(
    r"(?P<table>(?:.*?/)?)(?P<partitions>(?:[^/=]+=[^/]*/)*)part-\d{5,}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[-_.][^/]*"
)
"""A file that Spark wrote, in any format: its name contains the id of a job."""
_GLOB_PATHS = "__globPaths__"
"""Spark's option for paths that are no patterns."""
_OVERWRITE_MODE = "partitionOverwriteMode"
_REPLACES_PARTITIONS = {
    PROTOCOL_KEY: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    "spark.sql.sources.outputCommitterClass": "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter",
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
}
"""The only commit protocol and committers that replace partitions in every version of Spark."""
_IN_DELTA_LOG = re.compile(rf"((?:.*/)?){DELTA_LOG}/")


def check_format(spark: SparkSession, uri: str, format: str, *, writing: bool = False) -> None:
    """Raise `GuardrailViolation` if a Delta table is used as plain files, or would be written among plain files."""
    if has_wildcard(uri) or not (format in FILES or (writing and format == DELTA)):
        return
    if _exists(spark, f"{uri}/{DELTA_LOG}"):
        if format != DELTA:
            raise GuardrailViolation(f'it is a Delta table, not {format}; say format="delta"')
    elif format == DELTA and first_file(spark, uri) is not None:
        raise GuardrailViolation(
            "there are files of another format; write to another path, or make them a Delta table by CONVERT TO DELTA"
        )


def unknown_format(error: Exception, format: str) -> str | None:
    """Return a message that says how to add a missing format to the session. Returns None for any other error."""
    messages = all_messages(error)
    if not any(text in messages for text in _NOT_FOUND):
        return None
    from pyspark import __version__ as version

    format = normalized_format(format)
    package = _PACKAGES.get(format, "GROUP:NAME:VERSION").format(minor=".".join(version.split(".")[:2]))
    return (
        f"this Spark session does not know the format {format!r}; add the package that has it, in a version for "
        f"Spark {version}: PERAGO_SPARK_CONF='spark.jars.packages={package}{_MORE.get(format, '')}'"
    )


def normalized_format(format: str) -> str:
    """Return a format's name, converted to lower case if Perago knows the format. Spark ignores the case."""
    return format.lower() if format.lower() in FILES | {DELTA} else format


def quoted(name: str) -> str:
    """Return a column's name as Spark takes it literally: a plain `a.b` would be the field `b` of the column `a`."""
    return "`" + name.replace("`", "``") + "`"


def _exists(spark: SparkSession, uri: str) -> bool:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    return bool(path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path))


def first_file(spark: SparkSession, uri: str) -> str | None:
    """Return the URI of one file that Spark would read from the table at `uri`, or None if there is none.

    `uri` may be a pattern.
    """
    jvm: Any = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(uri)
    system = path.getFileSystem(conf)
    for start in system.globStatus(path) or []:
        pending = [start]
        while pending:
            status = pending.pop()
            name = status.getPath().getName()
            hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
            if hidden and status is not start:
                continue
            if status.isDirectory():
                pending += list(system.listStatus(status.getPath()))
            elif status.getLen() > 0:
                return str(status.getPath().toString())
    return None


def parquet_schema(spark: SparkSession, file: str) -> StructType | None:
    """Return the schema that Spark wrote into the file's footer, or None if Spark did not write the file."""
    jvm: Any = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(file)
    try:
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
            jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, conf)
        )
        try:
            text = reader.getFooter().getFileMetaData().getKeyValueMetaData().get(_SPARK_SCHEMA)
        finally:
            reader.close()
    except Py4JJavaError:
        return None  # not Parquet: Spark's own reader has the better error message
    return StructType.fromJson(json.loads(text)) if text else None


def stored_schema(spark: SparkSession, file: str, format: str) -> StructType:
    """Return the schema of one file, running a Spark job if necessary."""
    found = parquet_schema(spark, file) if format == "parquet" else None
    return found if found is not None else spark.read.format(format).load(file).schema


@dataclass(frozen=True, slots=True)
class TableSource:
    """The table to read, and those of its files that are read: all of them if `files` is None.  Both are URIs."""

    uri: str
    files: tuple[str, ...] | None = None

    def load(self, reader: DataFrameReader) -> DataFrame:
        """Return the rows.  Partition columns come from the folders between the table and a file."""
        if self.files is None:
            return reader.load(self.uri)
        if self.files != (self.uri,):
            reader = reader.option("basePath", self.uri)
        return reader.option(_GLOB_PATHS, "false").load(list(self.files))

    def first_file(self, spark: SparkSession) -> str | None:
        """Return the URI of one of the files, or None if there is none."""
        return first_file(spark, self.uri) if self.files is None else next(iter(self.files), None)


def read_files(
    spark: SparkSession,
    source: TableSource,
    format: str,
    schema: TableSchema | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Return the rows in some files of a table, as `read_table` returns those in all of them."""
    if source.files is None or source.files:
        return read_table(spark, source, format, schema, options)
    if schema is not None:
        return spark.createDataFrame([], declared_schema(schema).struct)
    if first_file(spark, source.uri) is None:
        raise GuardrailViolation(
            "none of its files has changed, and none is here to tell the columns of an empty table; pass schema=…"
        )
    return read_table(spark, TableSource(source.uri), format, None, options).limit(0)


def check_plain_files(format: str) -> None:
    """Raise `GuardrailViolation` if a table in this format is more than its files, so that no file can be read alone."""
    if normalized_format(format) not in FILES:
        raise GuardrailViolation(
            f"only=… reads the changed files of a table, and the rows of a {format} table are not in plain files; read all "
            f"of it, or use a format of plain files: {', '.join(sorted(FILES))}"
        )


def read_table(
    spark: SparkSession,
    source: TableSource,
    format: str,
    schema: TableSchema | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Return a table. A Parquet table written by Spark is opened without a Spark job.

    Raises `GuardrailViolation`, listing all differences, if the table does not match the schema.
    """
    format = normalized_format(format)
    check_format(spark, source.uri, format)
    if schema is None:
        return _open(spark, source, format, options)[0]
    wanted = declared_schema(schema)
    names = [field.name for field in wanted.struct.fields]
    if format not in WITHOUT_A_SCHEMA:
        table, without_nulls = _open(spark, source, format, options)
        if format in FILES:
            columns = [one for one in table.schema.fields if one.name not in without_nulls]
            table = _with_declared_partitions(spark, source, format, options, table, columns, wanted)
        problems = differences(
            wanted, table.schema, lambda name: name in without_nulls and not without_nulls[name]
        )
        if not problems:
            return table.select(*map(quoted, names))
    else:
        problems = _header_differences(spark, source, names, options) if format == "csv" else []
        if not problems:
            return source.load(spark.read.format(format).options(**options).schema(wanted.struct))
    raise GuardrailViolation("it is not as declared: " + "; ".join(problems))


def write_table(
    df: DataFrame,
    uri: str,
    format: str,
    partition_by: Sequence[str],
    mode: str,
    schema: TableSchema | None,
    options: Mapping[str, Any],
) -> None:
    """Write a table. Columns that the schema declares as non-nullable are written as non-nullable.

    Where files stay beside the new ones, both must have the same partition columns and column types.
    """
    _check_arguments(df, mode)
    format, mode = normalized_format(format), mode.lower()
    check_format(df.sparkSession, uri, format, writing=True)
    if schema is not None:
        df = _as_declared(df, schema)
    if mode == "overwrite_partitions":
        _check_overwrite_partitions(format, partition_by, options)
        mode, options = "overwrite", {**options, _OVERWRITE_MODE: "dynamic"}
    if mode == "append" and format in FILES:
        partition_by = _partitions_as_stored(df.sparkSession, uri, partition_by)
        if format not in WITHOUT_A_SCHEMA:
            _check_appended_types(df, uri, format)
    if mode == "overwrite" and format in FILES:
        if _is_dynamic_overwrite(df.sparkSession, options):
            if partition_by:
                partition_by = _partitions_as_stored(df.sparkSession, uri, partition_by)
            _replace_partitions(df.sparkSession, options)
        else:
            delete_before_overwrite(df.sparkSession, uri)
    writer = df.write.format(format).mode(mode).options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(uri)


def _check_arguments(df: object, mode: object) -> None:
    """Raise `GuardrailViolation` if there is no DataFrame of Spark to write, or no such mode."""
    if not isinstance(df, DataFrame):
        kind = f"{type(df).__module__.partition('.')[0]}.{type(df).__name__}".removeprefix("builtins.")
        raise GuardrailViolation(
            f"there is a {kind} to write, not a DataFrame of Spark; make one with workspace.spark.createDataFrame(…)"
        )
    if not isinstance(mode, str) or mode.lower() not in MODES:
        raise GuardrailViolation(f"there is no mode {mode!r}{did_you_mean(str(mode), MODES)}")


def _check_overwrite_partitions(format: str, partition_by: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise `GuardrailViolation` for arguments that contradict `overwrite_partitions`, or a format that ignores it."""
    if not partition_by:
        raise GuardrailViolation(
            'mode="overwrite_partitions" needs the columns by which the table is partitioned: partition_by="day"'
        )
    if format not in FILES | {DELTA}:
        known = ", ".join(sorted(FILES | {DELTA}))
        raise GuardrailViolation(f'mode="overwrite_partitions" works for {known}, not for {format!r}')
    if str(options.get(_OVERWRITE_MODE, "dynamic")).lower() != "dynamic":
        raise GuardrailViolation(
            f'{_OVERWRITE_MODE}={options[_OVERWRITE_MODE]!r} contradicts mode="overwrite_partitions"; leave it out'
        )


def _partitions_as_stored(spark: SparkSession, uri: str, partition_by: Sequence[str]) -> Sequence[str]:
    """Return the partition columns as the table at `uri` spells them: Spark names folders as it is told.

    Raises `GuardrailViolation` if the table has others.  Spark does not compare them, and lays the new files beside the
    partitions: it then reads only some of the rows, without a word, or none.
    """
    file = first_file(spark, uri)
    if file is None:
        return partition_by
    there = _partition_columns(uri, file)
    if [name.lower() for name in there] == [name.lower() for name in partition_by]:
        return there
    if not partition_by:
        names = ", ".join(f'"{name}"' for name in there)
        raise GuardrailViolation(
            f"the table is partitioned by {', '.join(there)}, and rows beside its partitions could not be read; say "
            f"partition_by={names if len(there) == 1 else f'[{names}]'}"
        )
    how = f"partitioned by {', '.join(there)}" if there else "not partitioned"
    raise GuardrailViolation(
        f'the table is {how}, not partitioned by {", ".join(partition_by)}; write the whole table with mode="overwrite"'
    )


def _partition_columns(uri: str, file: str) -> list[str]:
    """Return the columns by which the table at `uri` is partitioned, as the path of one of its files names them."""
    _, _, inner = file.rpartition(uri.partition("://")[2].rstrip("/") + "/")
    return [unquote(part.partition("=")[0]) for part in inner.split("/")[:-1] if "=" in part]


def _replace_partitions(spark: SparkSession, options: Mapping[str, Any]) -> None:
    """Make the session commit with Hadoop's `FileOutputCommitter` from here on, unless it writes the branch directly.

    Committers for object stores cannot replace partitions: they fail, or add the new files to the old ones without a word
    (SPARK-56588).  The settings stay, because another thread of the body may be in the middle of such a write.
    """
    fixed = {key.lower() for key in _REPLACES_PARTITIONS}
    chosen = [key for key in options if key.lower() in fixed]
    if chosen:
        raise GuardrailViolation(
            f"{chosen[0]}={options[chosen[0]]!r}: partitions are replaced with Spark's FileOutputCommitter only; "
            "leave it out"
        )
    if commits_directly(spark):
        return
    for key, value in _REPLACES_PARTITIONS.items():
        spark.conf.set(key, value)


def _check_appended_types(df: DataFrame, uri: str, format: str) -> None:
    """Raise `GuardrailViolation` if the column types of appended rows differ from those in the table's files.

    This check runs before any work is done.
    """
    file = first_file(df.sparkSession, uri)
    problems = (
        type_conflicts(df.schema, stored_schema(df.sparkSession, file, format)) if file is not None else []
    )
    if problems:
        raise GuardrailViolation(f"{'; '.join(problems)}; cast the columns, or overwrite the whole table")


def check_new_files(spark: SparkSession, base: str, changes: Changes, files: Collection[str]) -> None:
    """Raise `PostGuardrailViolation` if a table's new files make it unreadable, or rows of it.

    They must be partitioned by the same columns as all its files, and have the column types of its unchanged files.
    """
    new = _first_of_each_table(changes.put)
    if not new:
        return
    changed = set(changes.put)
    kept = _first_of_each_table(path for path in files if path not in changed)
    of_delta = {match[1] for path in files if (match := _IN_DELTA_LOG.match(path))}
    columns, columns_kept = (
        _partitions_of_each_table(changes.put),
        _partitions_of_each_table(path for path in files if path not in changed),
    )
    for table in columns.keys() - of_delta:
        kept_ones = columns_kept.get(table, set())
        if len(kept_ones) < 2 and len(every := sorted(columns[table] | kept_ones)) > 1:
            ways = " and ".join(f"by {', '.join(names)}" if names else "not at all" for names in every)
            raise PostGuardrailViolation(
                f"rows of table {table.rstrip('/')!r} could not be read: its files are partitioned {ways}. Nothing is "
                "published; write all of them by the same columns"
            )
    for key, path in new.items():
        table, format = key
        if key not in kept or table in of_delta:
            continue
        try:
            written, stored = (stored_schema(spark, f"{base}/{one}", format) for one in (path, kept[key]))
        except SPARK_ERRORS as error:
            # The name is misleading: Spark did not write this file, and may not be able to read it.
            log.warning(
                "could not compare the column types of %s and %s, skipping", path, kept[key], exc_info=error
            )
            continue
        problems = type_conflicts(written, stored)
        if problems:
            raise PostGuardrailViolation(
                f"table {table.rstrip('/')!r} would be unreadable: {'; '.join(problems)}. Nothing is published; cast the "
                "columns, or overwrite the whole table"
            )


def _partitions_of_each_table(paths: Iterable[str]) -> dict[str, set[tuple[str, ...]]]:
    """Return, for each table, the lists of columns by which its files are partitioned: one, if all can be read."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for path in paths:
        if match := _SPARK_PART.fullmatch(path):
            names = tuple(unquote(part.partition("=")[0]) for part in match["partitions"].split("/")[:-1])
            found.setdefault(match["table"], set()).add(names)
    return found


def _first_of_each_table(paths: Iterable[str]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for path in paths:
        if match := _PART.fullmatch(path):
            found.setdefault((match["table"], match["format"]), path)
    return found


def _open(
    spark: SparkSession, source: TableSource, format: str, options: Mapping[str, Any]
) -> tuple[DataFrame, dict[str, bool]]:
    """Open a table. Also returns, for each column whose nullability is stored, whether it is non-nullable."""
    reader = spark.read.format(format).options(**options)
    merged = str(options.get("mergeSchema", "")).lower() == "true"
    file = source.first_file(spark) if format == "parquet" and not merged else None
    stored = parquet_schema(spark, file) if file is not None else None
    if stored is None:
        return source.load(reader), {}
    return source.load(reader.schema(stored)), {field.name: not field.nullable for field in stored.fields}


def _with_declared_partitions(
    spark: SparkSession,
    source: TableSource,
    format: str,
    options: Mapping[str, Any],
    table: DataFrame,
    columns: Sequence[StructField],
    wanted: DeclaredSchema,
) -> DataFrame:
    """Return the table with its partition columns, which are among `columns`, as declared.

    Their values are names of folders, and Spark guesses the types from them: of the texts "007" and "08" it makes numbers.
    """
    declared = {field.name: field.dataType for field in wanted.struct.fields}
    other = {
        field.name
        for field in columns
        if field.name in declared and field.dataType.simpleString() != declared[field.name].simpleString()
    }
    file = source.first_file(spark) if other and not has_wildcard(source.uri) else None
    changed = other.intersection(_partition_columns(source.uri, file)) if file is not None else ()
    if not changed:
        return table
    fields = [
        StructField(
            field.name, declared[field.name] if field.name in changed else field.dataType, field.nullable
        )
        for field in table.schema.fields
    ]
    # Through JSON, because a declared type may be marked as standing for several.
    schema = StructType.fromJson(StructType(fields).jsonValue())
    try:
        return source.load(spark.read.format(format).options(**options).schema(schema))
    except SPARK_ERRORS:
        return table  # a value is not of the declared type, so the difference is reported


def _header_differences(
    spark: SparkSession, source: TableSource, names: Sequence[str], options: Mapping[str, Any]
) -> list[str]:
    """Return the differences between a CSV header and the declared columns.

    The order matters too, because Spark assigns columns by position.
    """
    if str(options.get("header", "")).lower() != "true":
        return []
    plain = {key: value for key, value in options.items() if key.lower() != "inferschema"}
    found = source.load(spark.read.format("csv").options(**plain)).columns
    if list(found) == list(names):
        return []
    missing = [f"column {name!r} is missing" for name in names if name not in found]
    extra = [f"column {name!r} is not declared" for name in found if name not in names]
    return missing + extra or [f"the columns come as {', '.join(found)}, declared {', '.join(names)}"]


def _is_dynamic_overwrite(spark: SparkSession, options: Mapping[str, Any]) -> bool:
    """Return whether an overwrite replaces only the partitions that are written."""
    chosen = options.get(_OVERWRITE_MODE) or spark.conf.get("spark.sql.sources.partitionOverwriteMode")
    return str(chosen).lower() == "dynamic"


def _as_declared(df: DataFrame, schema: TableSchema) -> DataFrame:
    wanted = declared_schema(schema)
    problems = differences(wanted, df.schema, lambda _name: False)
    if problems:
        raise GuardrailViolation("it is not as declared: " + "; ".join(problems))
    nullable = {field.name for field in df.schema.fields if field.nullable}
    names = [field.name for field in wanted.struct.fields]
    further = [name for name in df.columns if name not in names]
    required = {field.name for field in wanted.struct.fields if not field.nullable}
    columns = [
        _never_null(df, name) if name in required & nullable else df[quoted(name)]
        for name in [*names, *further]
    ]
    return df.select(*columns)


def _never_null(df: DataFrame, name: str) -> Column:
    """Return the column, marked as non-nullable. PySpark has no function for this."""
    from pyspark.sql import Column

    jvm: Any = df.sparkSession._jvm
    bridge = jvm.org.apache.spark.sql.classic.ExpressionUtils
    column: Any = df[quoted(name)]
    asserted = jvm.org.apache.spark.sql.catalyst.expressions.objects.AssertNotNull(
        bridge.expression(column._jc), jvm.PythonUtils.toSeq([name])
    )
    return Column(bridge.column(asserted)).alias(name)
