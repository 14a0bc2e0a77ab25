"""Maps objects below the prefix to files and back, and detects what an attempt changed.

- The prefix matches whole path parts: with `/audio`, a task never sees `audiobook/`.
- Folder markers (zero bytes, name ends in `/`), Perago's marker file and `_lakefs_actions/`, which contains the fence,
  are never mapped to files and never deleted.
- A path that the file system cannot represent, or cannot distinguish from another, is rejected before any byte is
  transferred.  The error names the path.
- A file whose stat has not changed since the index was built is not read.  Git's rule for racily clean entries applies.
- `FileStates` stores a whole prefix in little memory, since workspaces with a million files exist.  Size, checksum and
  stat are packed into one byte string per path, which takes about 250 bytes including the path and its dict entry.
  Separate objects would take three times as much.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
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

_HEAD = struct.Struct("<BqqqQ")
_UNKNOWN, _HEX, _TEXT = 0, 1, 2
_WITH_STAT = 4

_NO_FILE = (
    (has_nul, "it holds a NUL character"),
    (has_empty_part, "it is absolute or has an empty part"),
    (either(has_dot_part, leads_out), "it has a part '.' or '..'"),
    (has_long_part, f"it has a part longer than {LONGEST_NAME} bytes"),
)


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's size and checksum.  A file is published unless both are known to be unchanged."""

    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class FileStat:
    """The stat values that show, without reading a file, whether it may have changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between two states of a view, as paths below the prefix."""

    put: tuple[str, ...]
    delete: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.put or self.delete)


def workdir_path(path: str, size: int, prefix: str) -> str | None:
    """Return an object's path relative to the workdir, or None if the task does not receive it."""
    if not path.startswith(prefix) or in_actions(path):
        return None
    if size == 0 and path.endswith("/"):
        return None
    relative = path[len(prefix) :]
    return None if is_marker(relative) else relative


def check_projection(paths: Iterable[str], *, folds_case: bool = False) -> None:
    """Raise `LakeError`, naming the path, if a folder on disk cannot represent all paths unchanged."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        wrong = first_broken(path, _NO_FILE)
        if wrong is not None:
            raise LakeError(f"object path {path!r} cannot be a file in a workdir: {wrong}")
        key = path.casefold() if folds_case else path
        if key in files:
            raise LakeError(
                f"objects {files[key]!r} and {path!r} are the same file on this file system, which ignores case"
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
    """Return whether a file must be read to determine its state.

    As in git, the stat of a file is not trusted if the file was written in the same clock tick as the index or later.
    """
    return now != then or now.mtime_ns >= index_ns or now.ctime_ns >= index_ns


def changes_between(base: Mapping[str, FileState], result: Mapping[str, FileState]) -> Changes:
    """Return the changes from `base` to `result`.  A file with an unknown checksum is treated as changed."""
    put = tuple(path for path, state in result.items() if not is_unchanged(base.get(path), state))
    delete = tuple(path for path in base if path not in result)
    return Changes(put, delete)


def is_unchanged(base: FileState | None, result: FileState) -> bool:
    """Return whether a file's content is known to be unchanged."""
    return base is not None and base.checksum is not None and base == result


class FileStates(Mapping[str, FileState]):
    """File states by path, in insertion order.  A file's stat may be stored with its state."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def put(self, path: str, state: FileState, stat: FileStat | None = None) -> None:
        """Set a file's state, replacing any earlier one."""
        kind, checksum = _encode_checksum(state.checksum)
        if stat is None:
            head = _HEAD.pack(kind, state.size, 0, 0, 0)
        else:
            head = _HEAD.pack(kind | _WITH_STAT, state.size, stat.mtime_ns, stat.ctime_ns, stat.inode)
        self._packed[path] = head + checksum

    def stat(self, path: str) -> FileStat | None:
        """Return the stat stored with a file's state, or None.  Its size is taken from the state."""
        packed = self._packed.get(path)
        if packed is None:
            return None
        kind, size, mtime_ns, ctime_ns, inode = _HEAD.unpack_from(packed)
        return FileStat(size, mtime_ns, ctime_ns, inode) if kind & _WITH_STAT else None

    def __getitem__(self, path: str) -> FileState:
        packed = self._packed[path]
        kind, size, *_ = _HEAD.unpack_from(packed)
        return FileState(size, _decode_checksum(kind & ~_WITH_STAT, packed[_HEAD.size :]))

    def __contains__(self, path: object) -> bool:
        return path in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


class EditedStates(Mapping[str, FileState]):
    """The file states of an edited folder: the base states, with some deleted, some replaced and some new."""

    __slots__ = ("_base", "_gone", "_read")

    def __init__(self, base: FileStates, read: FileStates, gone: set[str]) -> None:
        self._base = base
        self._read = read
        self._gone = gone

    def changes(self) -> Changes:
        """Return the changes from the base states.  Files whose stat is unchanged are not compared."""
        put = tuple(
            path for path, state in self._read.items() if not is_unchanged(self._base.get(path), state)
        )
        return Changes(put, tuple(path for path in self._base if path in self._gone))

    def __getitem__(self, path: str) -> FileState:
        found = self._read.get(path)
        if found is not None:
            return found
        if path in self._gone:
            raise KeyError(path)
        return self._base[path]

    def __contains__(self, path: object) -> bool:
        return path in self._read or (path in self._base and path not in self._gone)

    def __iter__(self) -> Iterator[str]:
        yield from (path for path in self._base if path not in self._gone)
        yield from (path for path in self._read if path not in self._base)

    def __len__(self) -> int:
        return len(self._base) - len(self._gone) + sum(1 for path in self._read if path not in self._base)


def _encode_checksum(checksum: str | None) -> tuple[int, bytes]:
    if checksum is None:
        return _UNKNOWN, b""
    try:
        packed = bytes.fromhex(checksum)
    except ValueError:
        packed = b""
    # Only if the round trip is lossless: upper case and spaces would be lost.
    return (_HEX, packed) if packed.hex() == checksum else (_TEXT, checksum.encode())


def _decode_checksum(kind: int, checksum: bytes) -> str | None:
    if kind == _UNKNOWN:
        return None
    return checksum.hex() if kind == _HEX else checksum.decode()
