"""What a stored table says about itself, without a Spark job.

Spark's Parquet files keep their schema, nullability included, in the footer; reading one file's footer is what Spark
would do too, in a job of its own.  Where there is none (another writer, another format) Spark has to look.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


def first_file(spark: SparkSession, uri: str) -> str | None:
    """The URI of any file of the table at `uri` that Spark would read (a pattern is resolved first), or None."""
    jvm: Any = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(uri)
    system = path.getFileSystem(conf)
    for start in system.globStatus(path) or []:
        pending = [start]
        while pending:
            status = pending.pop()
            name = status.getPath().getName()
            if name.startswith(("_", ".")) and status is not start:
                continue
            if status.isDirectory():
                pending += list(system.listStatus(status.getPath()))
            elif status.getLen() > 0:
                return str(status.getPath().toString())
    return None


def parquet_schema(spark: SparkSession, file: str) -> StructType | None:
    """The schema that Spark wrote into the file's footer, or None where another writer made it."""
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
        return None  # no Parquet: Spark's own reader says so, in better words
    return StructType.fromJson(json.loads(text)) if text else None


def stored_schema(spark: SparkSession, file: str, format: str) -> StructType:
    """The schema that one file stores, by a Spark job where it takes one."""
    found = parquet_schema(spark, file) if format == "parquet" else None
    return found if found is not None else spark.read.format(format).load(file).schema
