"""The files of a whole prefix in little memory: a million of them are a workspace that people have.

A file's size, checksum and stat are packed into one string of bytes under its path, about 250 bytes with the path and
its place in the table; as objects of their own they would be three times that.  They are unpacked as they are asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from perago.protocol.changes import Changes, FileStat, FileState, same

_HEAD = struct.Struct("<BqqqQ")
_UNKNOWN, _HEX, _TEXT = 0, 1, 2
_WITH_STAT = 4


class FileStates(Mapping[str, FileState]):
    """File states by path, in the order they were put in; a file's stat may be kept beside its state."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}

    def put(self, path: str, state: FileState, stat: FileStat | None = None) -> None:
        """Keep a file's state, in place of an earlier one."""
        kind, checksum = _coded(state.checksum)
        if stat is None:
            head = _HEAD.pack(kind, state.size, 0, 0, 0)
        else:
            head = _HEAD.pack(kind | _WITH_STAT, state.size, stat.mtime_ns, stat.ctime_ns, stat.inode)
        self._packed[path] = head + checksum

    def stat(self, path: str) -> FileStat | None:
        """The stat kept beside a state, if there is one; its size is the state's."""
        packed = self._packed.get(path)
        if packed is None:
            return None
        kind, size, mtime_ns, ctime_ns, inode = _HEAD.unpack_from(packed)
        return FileStat(size, mtime_ns, ctime_ns, inode) if kind & _WITH_STAT else None

    def __getitem__(self, path: str) -> FileState:
        packed = self._packed[path]
        kind, size, *_ = _HEAD.unpack_from(packed)
        return FileState(size, _decoded(kind & ~_WITH_STAT, packed[_HEAD.size :]))

    def __contains__(self, path: object) -> bool:
        return path in self._packed

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)


class EditedStates(Mapping[str, FileState]):
    """What a folder holds after edits: the states before, some of them gone, some replaced, some new."""

    __slots__ = ("_base", "_gone", "_read")

    def __init__(self, base: FileStates, read: FileStates, gone: set[str]) -> None:
        self._base = base
        self._read = read
        self._gone = gone

    def changes(self) -> Changes:
        """What makes the states before into these, without a look at those that are the same by stat."""
        put = tuple(path for path, state in self._read.items() if not same(self._base.get(path), state))
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


def _coded(checksum: str | None) -> tuple[int, bytes]:
    if checksum is None:
        return _UNKNOWN, b""
    try:
        packed = bytes.fromhex(checksum)
    except ValueError:
        packed = b""
    # Only what comes back as it was: capitals and spaces would not.
    return (_HEX, packed) if packed.hex() == checksum else (_TEXT, checksum.encode())


def _decoded(kind: int, checksum: bytes) -> str | None:
    if kind == _UNKNOWN:
        return None
    return checksum.hex() if kind == _HEX else checksum.decode()
