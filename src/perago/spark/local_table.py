"""Reads a table from files on this machine, for notebooks."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from perago.runtime.table_files import format_of


def read_local_table(path: Path, example: str, spark: SparkSession | None) -> DataFrame:
    """Return the table in a file or folder.  `example` is the name of one of its files, whose ending says the format.

    Without a session, the active one is used, or a new one is started on this machine.
    """
    session = (
        spark or SparkSession.getActiveSession() or SparkSession.builder.master("local[*]").getOrCreate()
    )
    kind = format_of(example) or "parquet"
    # Names may look like patterns.
    reader = session.read.option("__globPaths__", "false").format(kind)
    match kind:
        case "parquet":
            reader = reader.option("mergeSchema", "true")
        case "csv":
            tab = example.removesuffix(".gz").endswith(".tsv")
            reader = reader.options(header="true", inferSchema="true", sep="\t" if tab else ",", escape='"')
            reader = reader.option("multiLine", "true")
    return reader.load(f"file://{path}")
