"""From objects to files and back: the prefix projection, and what an attempt changed.

- The prefix is cut at path segments: with `/audio` a task never sees `audiobook/`.
- Not projected, never deleted: folder markers (zero bytes, name ends in `/`), Perago's marker file, and
  `_lakefs_actions/`, where lakeFS keeps the fence.
- A path that the file system cannot hold, or cannot tell from another, is refused by name before a byte moves.
- A file that stat shows unchanged since the index is not read; git's racy rule applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from perago.errors import LakeError
from perago.protocol.paths import (
    LONGEST_NAME,
    either,
    first_broken,
    has_dot_part,
    has_empty_part,
    has_long_part,
    has_nul,
    in_actions,
    is_marker,
    leads_out,
)

_NO_FILE = (
    (has_nul, "it holds a NUL character"),
    (has_empty_part, "it is absolute or has an empty part"),
    (either(has_dot_part, leads_out), "it has a part '.' or '..'"),
    (has_long_part, f"it has a part longer than {LONGEST_NAME} bytes"),
)


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's content, as far as publishing cares."""

    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class FileStat:
    """What tells, without reading it, whether a file may have changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What turns one state of a view into another, as paths below the prefix."""

    put: tuple[str, ...]
    delete: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


def projected(path: str, size: int, prefix: str) -> str | None:
    """Where an object goes below the workdir; None for what is not a task's business."""
    if not path.startswith(prefix) or in_actions(path):
        return None
    if size == 0 and path.endswith("/"):
        return None
    relative = path[len(prefix) :]
    return None if is_marker(relative) else relative


def check_projection(paths: Iterable[str], *, folds_case: bool = False) -> None:
    """Refuse, by name, paths that a folder cannot hold as they are."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        wrong = first_broken(path, _NO_FILE)
        if wrong is not None:
            raise LakeError(f"object path {path!r} cannot be a file in a workdir: {wrong}")
        key = path.casefold() if folds_case else path
        if key in files:
            raise LakeError(
                f"objects {files[key]!r} and {path!r} are one file on this file system, which folds case"
            )
        files[key] = path
        parent = key.rpartition("/")[0]
        while parent and parent not in folders:
            folders[parent] = path
            parent = parent.rpartition("/")[0]
    for key, path in files.items():
        if key in folders:
            raise LakeError(
                f"object {path!r} and object {folders[key]!r} cannot both be files: one is a folder of the other"
            )


def must_hash(now: FileStat, then: FileStat | None, index_ns: int) -> bool:
    """Whether a file has to be read to know its state.

    The racy rule: a file written in the same clock tick as the index, or later, may have changed without its
    stat showing it.
    """
    return now != then or now.mtime_ns >= index_ns or now.ctime_ns >= index_ns


def changes_between(base: Mapping[str, FileState], result: Mapping[str, FileState]) -> Changes:
    """What makes `base` into `result`; a checksum that the lake does not know counts as different."""
    put = tuple(path for path, state in result.items() if not same(base.get(path), state))
    delete = tuple(path for path in base if path not in result)
    return Changes(put, delete)


def same(base: FileState | None, result: FileState) -> bool:
    """Whether a file is known to have the content that it had."""
    return base is not None and base.checksum is not None and base == result
