"""What Perago knows of formats; the rest is between Spark and the package that brings a format.

    format                          its schema is          an overwrite
    csv  json  text  xml            what the reader says   Spark empties the folder
    avro  orc  parquet              in the files           Spark empties the folder
    delta, and any other            in the table           is the format's own doing

A Delta table is a folder of Parquet files and a log that says which of them count.  Read as Parquet it shows rows that were
deleted long ago, and an overwrite as Parquet destroys it: so it is taken for a Delta table, or refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perago.errors import GuardrailViolation
from perago.protocol.paths import has_wildcard
from perago.spark.failures import all_messages
from perago.spark.paths import DELTA_LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHOUT_A_SCHEMA = frozenset({"csv", "json", "text", "xml"})
FILES = WITHOUT_A_SCHEMA | {"avro", "orc", "parquet"}
DELTA = "delta"

_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13:VERSION",
    "delta": "io.delta:delta-spark_{minor}_2.13:VERSION",
}
_MORE = {
    "delta": ";spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
    ";spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
}
_NOT_FOUND = ("[DATA_SOURCE_NOT_FOUND]", "Failed to find data source")


def check_format(spark: SparkSession, uri: str, format: str, *, writing: bool = False) -> None:
    """Refuse a Delta table that is to be read or written as plain files, and plain files that Delta would write among."""
    if has_wildcard(uri) or not (format in FILES or (writing and format == DELTA)):
        return
    if _exists(spark, f"{uri}/{DELTA_LOG}"):
        if format != DELTA:
            raise GuardrailViolation(f'it is a Delta table, not {format}; say format="delta"')
    elif format == DELTA:
        from perago.spark.parquet_footer import first_file

        if first_file(spark, uri) is not None:
            raise GuardrailViolation(
                "there are files of another format; write to another path, or make them a Delta table by CONVERT TO DELTA"
            )


def unknown_format(error: Exception, format: str) -> str | None:
    """How to make the session know a format, if that is what the error is about."""
    said = all_messages(error)
    if not any(text in said for text in _NOT_FOUND):
        return None
    from pyspark import __version__ as version

    format = known_name(format)
    package = _PACKAGES.get(format, "GROUP:NAME:VERSION").format(minor=".".join(version.split(".")[:2]))
    return (
        f"this Spark session does not know the format {format!r}; add the package that has it, in a version for "
        f"Spark {version}: PERAGO_SPARK_CONF='spark.jars.packages={package}{_MORE.get(format, '')}'"
    )


def known_name(format: str) -> str:
    """The name of a format as this file has it: Spark takes capitals for small letters."""
    return format.lower() if format.lower() in FILES | {DELTA} else format


def _exists(spark: SparkSession, uri: str) -> bool:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    return bool(path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path))
