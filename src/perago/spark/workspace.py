"""`SparkWorkspace`: the workspace of a Spark task, as its body sees it.

Tables are named by their path below the task's prefix.  A path outside what the task sees or, for writes, may change is
rejected.  The body need not know whether the bytes are in a folder or on a staging branch.

Every Spark task module imports this one, on machines with and without pyspark, so pyspark is imported only when needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel

from perago.errors import GuardrailViolation, TaskFailed
from perago.protocol.view import View
from perago.spark.paths import seen_path, written_path
from perago.spark.udf_types import parse_types_late

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from perago.spark.schema import TableSchema

# Called here because every Spark task module imports this module before it declares anything.
parse_types_late()

Model = TypeVar("Model", bound=BaseModel)
Mode = Literal["overwrite", "overwrite_partitions", "append", "error", "errorifexists", "ignore"]


class SparkWorkspace:
    """Reads and writes tables by their path in the workspace.

    Perago creates a workspace for each attempt. A unit test can create its own: `SparkWorkspace(tmp_path, spark)`.
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
        """The Spark session: the attempt's own or, in a unit test, the one passed to the constructor."""
        return self._session() if callable(self._session) else self._session

    @property
    def base(self) -> str:
        """The URI of the task's prefix, in the form that Spark uses."""
        return self._base

    @property
    def tables(self) -> frozenset[str]:
        """The paths of the tables read and written so far."""
        return frozenset(self._tables)

    def uri(self, path: str) -> str:
        """Return the URI of a path, for use with Spark. Raises `TaskFailed` if the path is outside the task's view."""
        return f"{self._base}/{seen_path(path, self._view)}"

    def read(
        self, path: str, format: str = "parquet", schema: TableSchema | None = None, **options: Any
    ) -> DataFrame:
        """Return the table at a path, in any format that the session knows.

        If a schema is passed, the table must match it. If it does not match, `GuardrailViolation` is raised before any
        work is done, and lists all differences.
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
        """Write a table to a path, in any format that the session knows.

        If a schema is passed, the table must match it, and columns declared as non-nullable are written as such: a null
        in one of them fails the job.

        Args:
            df: The rows.
            path: The table's path in the workspace.
            format: The table's format.
            partition_by: The columns by which the table is partitioned.
            mode: `overwrite` replaces the whole table, `overwrite_partitions` exactly the partitions that the rows
                belong to. `append` adds the rows. With `ignore` or `error`, an existing table stays as it is, or fails
                the attempt.
            schema: The table's declared columns.
            options: Spark's options for writing it.
        """
        from perago.spark.tables import write_table

        written_path(path, self._view, partitions=str(mode).lower() == "overwrite_partitions")
        # Not `uri`: a task that sees some partitions of a table may replace them, and cannot read the whole table.
        uri = f"{self._base}/{path}"
        self._touch(path, format)
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        try:
            write_table(df, uri, format, columns, mode, schema, options)
        except Exception as error:
            raise self._failure("writing", path, format, error) from error

    def from_models(self, models: Iterable[Model], schema: type[Model]) -> DataFrame:
        """Return a DataFrame with one row for each model. It is not written yet."""
        from perago.spark.models import frame_of_models

        return frame_of_models(self.spark, models, schema)

    def to_models(self, df: DataFrame, schema: type[Model]) -> list[Model]:
        """Return the rows of a DataFrame as models.

        All rows are brought to the driver. Raises `GuardrailViolation` if they do not fit the model.
        """
        from perago.spark.models import models_in_frame

        return models_in_frame(df, schema)

    def without_writes(self) -> SparkWorkspace:
        """Return the same workspace, in which nothing can be written. Checks get it."""
        return SparkWorkspace(self._base, self._session, view=replace(self._view, writes=()))

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
