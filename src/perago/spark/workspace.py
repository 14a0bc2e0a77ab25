"""`SparkWorkspace`: the workspace of a Spark task, as its body sees it.

Tables are named by their path below the task's prefix, and a path outside what the task sees, or may change, is refused.
The body need not know whether the bytes are in a folder or on a staging branch.

Every task module imports this, on machines with and without pyspark, so pyspark is imported only on use.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from perago.errors import GuardrailViolation, TaskFailed
from perago.protocol.view import View
from perago.spark.paths import seen_path, written_path
from perago.spark.udf_types import parse_types_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from perago.spark.schema import TableSchema

# Here, because every task module imports this module before it declares anything.
parse_types_late()

Mode = Literal["overwrite", "append", "error", "errorifexists", "ignore"]


class SparkWorkspace:
    """Tables by their path in the workspace.

    Perago makes one for each attempt; a unit test makes its own: `SparkWorkspace(tmp_path, spark)`.
    """

    __perago_workspace__: ClassVar[str] = "spark"

    def __init__(
        self,
        base: str | os.PathLike[str],
        session: SparkSession | Callable[[], SparkSession],
        *,
        view: View | None = None,
    ) -> None:
        text = os.fspath(base).rstrip("/")
        self._base = text if "://" in text else f"file://{os.path.abspath(text)}"
        self._session = session
        self._view = view or View("")
        self._tables: set[str] = set()

    @property
    def spark(self) -> SparkSession:
        """The session: the attempt's own, or in a unit test the one passed to the constructor."""
        return self._session() if callable(self._session) else self._session

    @property
    def base(self) -> str:
        """The URI of the prefix, for Spark."""
        return self._base

    @property
    def tables(self) -> frozenset[str]:
        """The paths read and written so far."""
        return frozenset(self._tables)

    def uri(self, path: str) -> str:
        """Return Spark's URI of a path. Raises `TaskFailed` if the task does not see it."""
        return f"{self._base}/{seen_path(path, self._view)}"

    def read(
        self, path: str, format: str = "parquet", schema: TableSchema | None = None, **options: Any
    ) -> DataFrame:
        """Return the table at a path, in any format that the session knows.

        With a schema the table must fit it: `GuardrailViolation` lists all differences, before any work.
        """
        from perago.spark.tables import read_table

        self._touch(path, format)
        try:
            return read_table(self.spark, self.uri(path), format, schema, options)
        except Exception as error:
            raise self._failure("reading", path, format, error) from error

    def write(
        self,
        df: DataFrame,
        path: str,
        format: str = "parquet",
        partition_by: Sequence[str] = (),
        mode: Mode = "overwrite",
        *,
        schema: TableSchema | None = None,
        **options: Any,
    ) -> None:
        """Write a table to a path, in any format that the session knows. `mode` says what happens to an existing one.

        With a schema the table must fit it, and columns declared without nulls are written as such: a null in one
        fails the job.
        """
        from perago.spark.tables import write_table

        written_path(path, self._view)
        self._touch(path, format)
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        try:
            write_table(df, self.uri(path), format, columns, mode, schema, options)
        except Exception as error:
            raise self._failure("writing", path, format, error) from error

    def _touch(self, path: str, format: object) -> None:
        if not isinstance(format, str) or not format.strip():
            raise TaskFailed(
                f"format {format!r} of table {path!r} must be the name of a format, such as 'parquet'"
            )
        self._tables.add(path)

    def _failure(self, doing: str, path: str, format: str, error: Exception) -> Exception:
        from perago.spark.failures import SPARK_ERRORS, short_reason
        from perago.spark.tables import unknown_format

        if isinstance(error, GuardrailViolation):
            return GuardrailViolation(f"{doing} table {path!r}: {error}")
        if not isinstance(error, SPARK_ERRORS):
            return error
        reason = unknown_format(error, format) or short_reason(error, base=self._base)
        return TaskFailed(f"{doing} table {path!r} failed: {reason}")
