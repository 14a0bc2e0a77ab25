"""Check tables that keep files from the input and get new ones: all files must have the same column types.

Spark reads a table with one schema, so a decimal(15,2) next to a decimal(38,18) makes the column unreadable for every
later reader.  The check covers everything that an attempt is about to publish, however it was written: appended, by
partition, through the workspace or not.  Delta tables are skipped, because Delta manages its own files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from perago.errors import PostGuardrailViolation
from perago.protocol.changes import Changes
from perago.spark.failures import SPARK_ERRORS
from perago.spark.paths import DELTA_LOG
from perago.spark.schema import other_types
from perago.spark.tables import stored_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("perago.spark")

_PART = re.compile(r"(?P<table>(?:.*?/)?)(?:[^/=]+=[^/]*/)*part-\d{5}[^/]*\.(?P<format>parquet|orc|avro)")
_IN_DELTA_LOG = re.compile(rf"((?:.*/)?){DELTA_LOG}/")


def check_kept_files(spark: SparkSession, base: str, changes: Changes, files: Collection[str]) -> None:
    """Raise `PostGuardrailViolation` if a table's new files have other column types than its unchanged files."""
    new = _first_of_each_table(changes.put)
    if not new:
        return
    changed = set(changes.put)
    kept = _first_of_each_table(path for path in files if path not in changed)
    of_delta = {match[1] for path in files if (match := _IN_DELTA_LOG.match(path))}
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
        wrong = other_types(written, stored)
        if wrong:
            raise PostGuardrailViolation(
                f"table {table.rstrip('/')!r} would be unreadable: {'; '.join(wrong)}. Nothing is published; cast the "
                "columns, or overwrite the whole table"
            )


def _first_of_each_table(paths: Iterable[str]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for path in paths:
        if match := _PART.fullmatch(path):
            found.setdefault((match["table"], match["format"]), path)
    return found
