"""Validates paths in a Spark workspace, and recognizes Spark's leftovers.

Paths are relative to the prefix and must lie within what the task sees or, for writes, may change.

Leftovers are files that Spark leaves in the folder of a table it wrote.  They are not data and are not published.  A
user file whose name merely starts the same way is not a leftover.

    _temporary/  __magic/  __magic_job-…/       tasks that did not finish (Hadoop's committers)
    .spark-staging-<id>/                        partitions that were not moved into place
    _SUCCESS                                    the marker of a finished job
    .<name>.crc beside <name>                   Hadoop's checksums, if Spark wrote <name> or the size matches
    _delta_log/.<name>.tmp  .<name>.crc         Delta log entries that were not moved into place, and Hadoop's checksums

Everything else in a `_delta_log/` belongs to the table: versions, checkpoints, `_last_checkpoint`, and Delta's own
`<version>.crc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from perago.declare.input_changes import InputChanges
from perago.errors import GuardrailViolation, TaskFailed
from perago.protocol.paths import (
    either,
    first_broken,
    has_backslash,
    has_dot_part,
    has_empty_part,
    has_marker_part,
    has_nul,
    has_scheme,
    has_wildcard,
    in_actions,
    is_absolute,
    is_empty,
    leads_out,
)
from perago.protocol.view import View

DELTA_LOG = "_delta_log"

_NOT_INSIDE = (
    (is_empty, "it is empty; name a folder or file below the prefix"),
    (either(is_absolute, has_scheme), "it must be relative to the workspace's prefix"),
    (leads_out, "'..' leads out of the workspace"),
    (either(has_empty_part, has_dot_part), "it has an empty part or '.'"),
    (either(has_backslash, has_nul), "it must use '/' between its parts and hold no NUL"),
)
_LEFT_FOLDER = re.compile(r"_temporary|__magic(_job-.*)?|\.spark-staging-[0-9a-f-]+")
_LEFT_IN_DELTA_LOG = re.compile(r"\..+\.(tmp|crc)")
_SUCCESS = "_SUCCESS"
_SPARK_FILE = re.compile(r"part-\d{5}.*|_SUCCESS|_metadata|_common_metadata")
_CRC_EVERY = 512
_MOST_NAMED = 5


def seen_path(path: str, view: View) -> str:
    """Return a path or pattern unchanged, if the task may see it.

    Raises `TaskFailed` if it is invalid, or if it could match anything that the task may not see.
    """
    problem = _path_problem(path, prefix=view.prefix)
    if problem is None and not view.sees(path):
        problem = f"it is outside what the task sees ({view.describe_roots(view.roots)}); name it in WorkspaceSpec(reads=…)"
    return _path_or_raise(path, problem)


def written_path(path: str, view: View, *, partitions: bool = False) -> str:
    """Return the path unchanged, if the task may write a table there.

    Raises `TaskFailed` if the path is invalid, or if any part of the table is outside what the task may change.  If only
    some of its partitions are written, it is enough that some part of it may be changed: a change elsewhere fails the
    attempt after the body.
    """
    problem = _path_problem(path, prefix=view.prefix)
    if problem is None and has_wildcard(path):
        problem = "a table is written to a plain path, without '*', '?', '[' or '{'"
    if problem is None and not view.write_roots:
        problem = (
            "the task has read_only=True, and with direct placement it reads the commit itself; write scratch tables "
            "elsewhere, or leave read_only out"
        )
    if problem is None and not (view.may_write_in(path) if partitions else view.may_write(path)):
        may = f"it is outside what the task may change ({view.describe_roots(view.write_roots)})"
        problem = f"{may}; name it in WorkspaceSpec(writes=…)"
    return _path_or_raise(path, problem)


def chosen_files(found: InputChanges, only: object) -> tuple[str, ...]:
    """Return the files to read, by what has changed in a table since the task's last publication.

    Raises `GuardrailViolation` if files were changed or removed and the task does not say how it handles that.
    """
    if callable(only):
        chosen = tuple(only(found))
        unknown = [path for path in chosen if path not in found.present]
        if unknown:
            raise GuardrailViolation(f"only=… chose {unknown[0]!r}, which was neither added nor changed")
        return chosen
    if only == "added":
        return found.added
    if only != "changed":
        raise GuardrailViolation(
            f'only={only!r} must be "changed", "added" or a function that takes the changes'
        )
    if found.changed or found.removed:
        parts = [
            f"{len(paths)} of its files were {kind} ({', '.join(paths[:_MOST_NAMED])}{', …' * (len(paths) > _MOST_NAMED)})"
            for kind, paths in (("changed", found.changed), ("removed", found.removed))
            if paths
        ]
        raise GuardrailViolation(
            f"{' and '.join(parts)} since the task's last publication {found.since}, and new rows alone do not make up for "
            'that; say only="added", pass a function that chooses the files, or run with --full'
        )
    return found.added


def is_hidden(path: str, table: str) -> bool:
    """Return whether Spark ignores a file of a table, by its name or that of a folder in the table."""
    inner = path.removeprefix(f"{table}/") if path != table else path.rpartition("/")[2]
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in inner.split("/")
    )


def is_leftover(path: str, size: int, size_of: Callable[[str], int | None]) -> bool:
    """Return whether a file is one of Spark's leftovers.

    `size_of` returns the size of another file, or None if that file does not exist.
    """
    *folders, name = path.split("/")
    if any(_LEFT_FOLDER.fullmatch(part) for part in folders) or name == _SUCCESS:
        return True
    if folders and folders[-1] == DELTA_LOG and _LEFT_IN_DELTA_LOG.fullmatch(name):
        return True
    if not (name.startswith(".") and name.endswith(".crc")):
        return False
    sibling = name[1:-4]
    found = size_of("/".join([*folders, sibling]))
    if found is None:
        return False
    # A checksum file consists of a magic number, the chunk length, and one CRC per chunk.
    return bool(_SPARK_FILE.fullmatch(sibling)) or size == 8 + 4 * -(-found // _CRC_EVERY)


def _path_or_raise(path: str, problem: str | None) -> str:
    if problem is not None:
        raise TaskFailed(f"workspace path {path!r} is refused: {problem}")
    return path


def _path_problem(path: object, *, prefix: str) -> str | None:
    if not isinstance(path, str):
        return "it must be text"
    problem = first_broken(path, _NOT_INSIDE)
    if problem is None and (has_marker_part(path) or in_actions(f"{prefix}{path}/")):
        problem = "that name is Perago's or lakeFS's own"
    return problem
