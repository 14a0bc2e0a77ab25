"""A request to compare two states of a table, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.runtime.table_files import Format

LIMIT_BYTES = 1024**3
"""The most bytes of files that are downloaded, unless the caller says otherwise."""
Side = Literal["a", "b"]
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The table to compare, at two refs.  Rows with the same `key` columns are one row; without a key, none is changed."""

    repository: str
    a: str
    b: str
    path: str
    key: tuple[str, ...] = ()
    limit_bytes: int = LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that only one side has, or whose type differs."""

    column: str
    change: Literal["added", "removed", "type"]
    type_before: str | None
    type_after: str | None


@dataclass(frozen=True, slots=True)
class ComparedFiles:
    """The numbers of files at both commits, of files that both share, and of those that were read, with their bytes.

    `partitions` are those that were compared, out of all that differ; both are None unless the table was sampled.
    """

    a: int
    b: int
    shared: int
    read: int
    size: int
    partitions: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Some of the rows that differ.  A changed row has its key, and the values of the changed columns on both sides."""

    added: Sequence[Row] = ()
    removed: Sequence[Row] = ()
    changed: Sequence[tuple[Row, Row, Row]] = ()


@dataclass(frozen=True, slots=True)
class RowDiff:
    """The difference between two states of a table.  `changed` is None without a key."""

    path: str
    commits: tuple[str, str]
    formats: tuple[Format | None, Format | None]
    files: ComparedFiles
    columns: Sequence[ColumnChange] = ()
    key: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    changed: int | None = None
    changed_values: Mapping[str, int] = field(default_factory=dict)
    duplicate_keys: int = 0
    samples: Samples = Samples()
