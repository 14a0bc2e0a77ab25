"""Finds the files that make up a table at one commit: Parquet, CSV, JSON lines, or a Delta table.

A table is one object, or a folder of objects in one format.  As in Spark, files and folders that begin with `_` or `.` do
not count, and neither do empty files.  The values in folder names (`day=2026-11-19`) are columns of every row below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from perago.errors import LakeNotFound, RuntimeConfigError
from perago.lake.base import Entry, ReadableLake
from perago.runtime.delta_log import DELTA_LOG, ReadCheckpoint, read_delta_log

Format = Literal["parquet", "csv", "json", "delta"]
FORMATS: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
NAMES: Mapping[Format, str] = {"parquet": "Parquet", "csv": "CSV", "json": "JSON lines", "delta": "Delta"}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Partition = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table, with the partition that its rows belong to: the columns' names and values, as text."""

    entry: Entry
    partition: Partition = ()


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table at one commit.  `declared` are a Delta table's columns with Delta's types, else None."""

    format: Format
    files: Sequence[TableFile]
    declared: Mapping[str, Any] | None = None


def format_of(path: str) -> Format | None:
    """Return the format that a file's name says, or None if it is none that a table may have."""
    name = path.rpartition("/")[2].removesuffix(".gz")
    return next((found for ending, found in FORMATS.items() if name.endswith(ending)), None)


def tables_among(paths: Iterable[str]) -> list[str]:
    """Return the tables that these files belong to, sorted: the folder above partitions, or a file at the top."""
    found = set()
    for path in paths:
        table, delta, _ = path.partition(f"{DELTA_LOG}/")
        if delta:
            found.add(table.rstrip("/"))
        elif format_of(path) is not None:
            folders = path.split("/")[:-1]
            while folders and "=" in folders[-1]:
                folders.pop()
            found.add("/".join(folders) or path)
    delta_tables = {one for one in found if any(path.startswith(f"{one}/{DELTA_LOG}/") for path in paths)}
    return sorted(one for one in found if not any(one.startswith(f"{table}/") for table in delta_tables))


def list_table(
    lake: ReadableLake, where: tuple[str, str, str], folder: Path, read_checkpoint: ReadCheckpoint
) -> TableFiles | None:
    """Return the files of the table at `where` (repository, commit, path), or None if nothing is there.

    Raises `RuntimeConfigError` if the files are not one table.  A Delta table's log is downloaded to the empty `folder`.
    """
    repository, commit, path = where
    table = f"{path.rstrip('/')}/" if path.rstrip("/") else ""
    entries = [entry for entry in lake.list(repository, commit, table) if entry.size]
    if any(entry.path.startswith(f"{table}{DELTA_LOG}/") for entry in entries):
        state = read_delta_log(lake, (repository, commit, table), entries, folder, read_checkpoint)
        return _delta_files(table, {entry.path: entry for entry in entries}, state)
    found = [
        TableFile(one, _partition(one.path[len(table) :])) for one in entries if not _hidden(one.path, table)
    ]
    if not entries and table:
        try:
            found = [TableFile(lake.stat(repository, commit, path.rstrip("/")))]
        except LakeNotFound:
            return None
    return TableFiles(_format(path, found), found) if found else None


def _delta_files(table: str, entries: Mapping[str, Entry], state: Any) -> TableFiles:
    files = []
    for one in state.files.values():
        entry = entries.get(f"{table}{one.path}")
        if entry is None:
            raise RuntimeConfigError(
                f"the log of the Delta table {table.rstrip('/')!r} names {one.path!r}, which is not there"
            )
        # Writers may store an empty text for a missing value; Delta reads both as null.
        values = tuple((name, one.partition.get(name) or None) for name in state.partition_columns)
        files.append(TableFile(entry, values))
    return TableFiles("delta", sorted(files, key=lambda one: one.entry.path), state.columns)


def _format(path: str, files: Sequence[TableFile]) -> Format:
    """Return the one format of a table's files.  Raises `RuntimeConfigError` if there is none, or more than one."""
    found: dict[Format, str] = {}
    for one in files:
        name = format_of(one.entry.path)
        if name is None:
            raise RuntimeConfigError(
                f"{path!r} is not a table: {one.entry.path!r} is not a {_endings()} file; name a folder that has "
                "only files of one table"
            )
        found.setdefault(name, one.entry.path)
    if len(found) > 1:
        raise RuntimeConfigError(
            f"{path!r} is not one table: {' and '.join(map(repr, found.values()))} have different formats; name one "
            "table's folder"
        )
    columns = {tuple(name for name, _ in one.partition) for one in files}
    if len(columns) > 1:
        raise RuntimeConfigError(
            f"{path!r} is not one table: its files are partitioned in different ways "
            f"({'; '.join(sorted('/'.join(one) or 'not at all' for one in columns))}); name one table's folder"
        )
    return next(iter(found))


def _endings() -> str:
    *most, last = FORMATS
    return f"{', '.join(most)} or {last}"


def _hidden(path: str, table: str) -> bool:
    parts = path[len(table) :].split("/")
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts)


def _partition(inner: str) -> Partition:
    """Return the partition that the folders of a path name."""
    values = []
    for part in inner.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals and name:
            values.append((unquote(name), None if value == _NO_VALUE else unquote(value)))
    return tuple(values)
