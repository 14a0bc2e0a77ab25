"""Formats that name files by absolute paths: the workdir, or the staging branch, is gone when somebody follows them.

    _spark_metadata/<number>                            the log of a streaming sink
    offsets/<number> beside metadata                    a streaming checkpoint
    metadata/<name>.metadata.json                       an Iceberg table
    _symlink_format_manifest/                           a Delta table's manifest for Presto, Trino or Hive
    _delta_log/<version>.json with an absolute path     a shallow clone of a table in the same workspace

The rule: new and changed files of these kinds fail the attempt by name before anything is staged.  What the input holds of
them stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterator
from urllib.parse import unquote

from perago.errors import PostGuardrailViolation
from perago.protocol.changes import Changes
from perago.runtime.attempt.writes import NAMED

Read = Callable[[str], bytes]

_SINK = re.compile(r"(?:.*/)?_spark_metadata/[^/]+")
_CHECKPOINT = re.compile(r"(.*/)?offsets/\d+")
_ICEBERG = re.compile(r"(?:.*/)?metadata/[^/]+\.metadata\.json")
_MANIFEST = re.compile(r"(?:.*/)?_symlink_format_manifest/.+")
_DELTA = re.compile(r"(?:.*/)?_delta_log/\d{20}\.json")

_STREAMS = "keep sinks and checkpoints elsewhere, and write each batch with workspace.write (foreachBatch)"
_REMEDIES = {
    "the log of a streaming sink": _STREAMS,
    "a streaming checkpoint": _STREAMS,
    "an Iceberg table": "write the table in another format, such as Parquet or Delta",
    "a manifest of symbolic links": "generate it where the table is read",
    "a shallow clone": "write a copy of the rows instead",
}


def check_absolute_paths(changes: Changes, files: Container[str], read: Read, *, gone: str) -> None:
    """Refuse, by name, changed files that store absolute paths.

    Args:
        changes: What the body changed, by paths below the prefix.
        files: All files that are to be published.
        read: Returns the content of one of them.
        gone: A part of every absolute path that leads into this attempt's own place.
    """
    found: dict[str, list[str]] = {}
    for path in changes.put:
        if (kind := _kind(path, files, read, gone)) is not None:
            found.setdefault(kind, []).append(path)
    for kind, paths in found.items():
        named = f"{', '.join(paths[:NAMED])}{' and more' if len(paths) > NAMED else ''}"
        raise PostGuardrailViolation(
            f"the task wrote {named}: {kind}, which names files by absolute paths, and these lead nowhere once the attempt "
            f"has ended. Nothing is published; {_REMEDIES[kind]}"
        )


def _kind(path: str, files: Container[str], read: Read, gone: str) -> str | None:
    if _SINK.fullmatch(path):
        return "the log of a streaming sink"
    if (match := _CHECKPOINT.fullmatch(path)) and (beside := f"{match[1] or ''}metadata") in files:
        return "a streaming checkpoint" if read(beside).startswith(b'{"id":') else None
    if _ICEBERG.fullmatch(path):
        return "an Iceberg table" if b'"format-version"' in read(path) else None
    if _MANIFEST.fullmatch(path):
        return "a manifest of symbolic links"
    if _DELTA.fullmatch(path) and any(gone in named for named in _files_of_delta(read(path))):
        return "a shallow clone"
    return None


def _files_of_delta(log: bytes) -> Iterator[str]:
    """The paths of the data files that one version of a Delta table adds."""
    for line in log.splitlines():
        try:
            added = json.loads(line).get("add") or {}
        except (ValueError, AttributeError):
            continue  # no entry of Delta's
        yield unquote(str(added.get("path", "")))
        yield str((added.get("deletionVector") or {}).get("pathOrInlineDv", ""))
