"""Reads the log of a Delta table at one commit: which files are valid, their partitions, and the declared columns.

The state is that of the newest version in the log.  The rule: a table that needs a feature this reader does not know is
refused by the feature's name, because its rows would be wrong.  Deletion vectors and column mapping are such features.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from perago.errors import RuntimeConfigError
from perago.lake.base import Download, Entry, ReadableLake

DELTA_LOG = "_delta_log"
ReadCheckpoint = Callable[[Path], Iterable[Mapping[str, Any]]]
"""Returns the actions in a checkpoint, which is a Parquet file, as they would be in a JSON file of the log."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_HARMLESS = frozenset(
    ["deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"]
)
"""Reader features that change nothing, as long as no file has a deletion vector and no column is mapped."""
_MOST_READER_VERSION = 3


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A valid file of a Delta table: its path below the table, and the text of each partition column."""

    path: str
    partition: Mapping[str, str | None]


@dataclass(slots=True)
class DeltaState:
    """The state of a Delta table: its valid files, declared columns (name and Delta's type), and partition columns."""

    files: dict[str, DeltaFile] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)
    partition_columns: Sequence[str] = ()

    def apply(self, table: str, action: Mapping[str, Any]) -> None:
        """Apply one action of the log.  Raises `RuntimeConfigError` if it needs a feature that is not supported."""
        if protocol := action.get("protocol"):
            _check_protocol(table, protocol)
        if metadata := action.get("metaData"):
            _check_metadata(table, metadata)
            fields = json.loads(metadata["schemaString"])["fields"]
            self.columns = {one["name"]: one["type"] for one in fields}
            self.partition_columns = tuple(metadata.get("partitionColumns") or ())
        if removed := action.get("remove"):
            self.files.pop(_inner_path(table, removed["path"]), None)
        if added := action.get("add"):
            if added.get("deletionVector"):
                raise _refusal(table, "deletion vectors")
            path = _inner_path(table, added["path"])
            self.files[path] = DeltaFile(path, dict(added.get("partitionValues") or {}))


@dataclass(frozen=True, slots=True)
class _LogFiles:
    """The files of a log that lead to its newest version: a checkpoint, which may have parts, and later commits."""

    checkpoint: Sequence[Entry]
    commits: Sequence[Entry]


def read_delta_log(
    lake: ReadableLake,
    where: tuple[str, str, str],
    entries: Iterable[Entry],
    folder: Path,
    read_checkpoint: ReadCheckpoint,
) -> DeltaState:
    """Return the state of a Delta table.

    `where` is the repository, commit and the table's folder, which ends in `/`; `entries` are the objects in it.  The log is
    downloaded to `folder`, which must be empty.
    """
    repository, commit, table = where
    log = _log_files(table, entries)
    files = [
        Download(entry, folder / str(number)) for number, entry in enumerate([*log.checkpoint, *log.commits])
    ]
    lake.download(repository, commit, files)
    state = DeltaState()
    for one in files[: len(log.checkpoint)]:
        for action in read_checkpoint(one.target):
            state.apply(table, action)
    for one in files[len(log.checkpoint) :]:
        for action in _actions(one.target):
            state.apply(table, action)
    if not state.columns:
        raise RuntimeConfigError(f"the log of the Delta table {table!r} has no schema: it is not complete")
    return state


def _log_files(table: str, entries: Iterable[Entry]) -> _LogFiles:
    commits: dict[int, Entry] = {}
    checkpoints: dict[int, dict[int, Entry]] = {}
    parts: dict[int, int] = {}
    prefix = f"{table}{DELTA_LOG}/"
    for entry in entries:
        name = entry.path.removeprefix(prefix)
        if found := _COMMIT.fullmatch(name):
            commits[int(found[1])] = entry
        elif found := _CHECKPOINT.fullmatch(name):
            version = int(found[1])
            checkpoints.setdefault(version, {})[int(found[2] or 1)] = entry
            parts[version] = int(found[3] or 1)
    complete = [version for version, found_parts in checkpoints.items() if len(found_parts) == parts[version]]
    first = max(complete, default=-1)
    later = sorted(version for version in commits if version > first)
    if later != list(range(first + 1, first + 1 + len(later))) or (first < 0 and not later):
        raise RuntimeConfigError(
            f"the log of the Delta table {table!r} lacks versions that this reader needs: it starts at "
            f"{min(commits, default='no version')}, and there is no classic checkpoint before that"
        )
    checkpoint = [entry for _, entry in sorted(checkpoints.get(first, {}).items())]
    return _LogFiles(checkpoint, [commits[version] for version in later])


def _actions(file: Path) -> Iterator[Mapping[str, Any]]:
    for line in file.read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def _check_protocol(table: str, protocol: Mapping[str, Any]) -> None:
    if protocol.get("minReaderVersion", 1) > _MOST_READER_VERSION:
        raise _refusal(table, f"reader version {protocol['minReaderVersion']}")
    for feature in protocol.get("readerFeatures") or ():
        if feature not in _HARMLESS:
            raise _refusal(table, feature)


def _check_metadata(table: str, metadata: Mapping[str, Any]) -> None:
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise _refusal(table, "column mapping")


def _inner_path(table: str, path: str) -> str:
    inner = unquote(path)
    if "://" in inner or inner.startswith("/"):
        raise _refusal(table, f"files elsewhere ({inner})")
    return inner


def _refusal(table: str, feature: str) -> RuntimeConfigError:
    return RuntimeConfigError(
        f"the Delta table {table.rstrip('/')!r} uses {feature}, which this reader does not support: its rows would be "
        "wrong; read it with Spark and Delta's own package"
    )
