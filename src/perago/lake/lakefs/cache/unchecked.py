"""A copy out of the cache that is handed out first and checked afterwards.

The body may write into its copy while that is checked, so a copy whose CRC is another one proves nothing.  Then the object
that it was copied from is looked at: if that was not written since its CRC was noted, the copy was made of what it holds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from dataclasses import dataclass

from perago.errors import LakeError
from perago.lake.lakefs.cache.files import copied_whole, create, remove
from perago.lake.verification import GoOn

_CHUNK = 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Noted:
    """A cached object's file, its size, and the CRC that was noted when it had this time of change."""

    file: str
    size: int
    crc: int
    mtime: int


@dataclass(frozen=True, slots=True)
class UncheckedCopy:
    """A copy of the object `path`; the cached object and the copy are open."""

    path: str
    noted: Noted
    source: int
    copy: int

    def verify(self, go_on: GoOn) -> None:
        """See that the copy was made of the right bytes; `LakeError` if not, and the cache has dropped them then."""
        noted = self.noted
        if _crc(self.copy, noted.size, go_on) == noted.crc:
            return
        if _crc(self.source, noted.size, go_on) == noted.crc and _untouched(self.source, noted):
            return
        level = logging.WARNING if _untouched(self.source, noted) else logging.DEBUG
        _log.log(level, "cached object %s has changed and is dropped", noted.file)
        remove(noted.file)
        raise LakeError(
            f"object {self.path!r} was damaged in the cache, which has dropped it; try again, and it is fetched anew"
        )

    def drop(self) -> None:
        """Close both files."""
        os.close(self.source)
        os.close(self.copy)


def copy_unchecked(path: str, noted: Noted, part: str) -> UncheckedCopy | None:
    """Copy a cached object to the new file `part`; None, and no `part`, where its CRC does not count or the kernel cannot.

    An `OSError` is that of `part`.
    """
    with contextlib.ExitStack() as undo:
        try:
            source = os.open(noted.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        undo.callback(os.close, source)
        target = create(part)
        undo.callback(remove, part)
        try:
            whole = copied_whole(source, noted.size, target)
        finally:
            os.close(target)
        # Looked at after the copy: until then nobody has written into it.
        if not whole or not _untouched(source, noted):
            return None
        # For reading alone: a program that is open for writing cannot be run.
        copy = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        undo.pop_all()
        return UncheckedCopy(path, noted, source, copy)


def _untouched(source: int, noted: Noted) -> bool:
    return os.fstat(source).st_mtime_ns == noted.mtime


def _crc(file: int, size: int, go_on: GoOn) -> int:
    at = crc = 0
    while at < size and (piece := os.pread(file, min(_CHUNK, size - at), at)):
        crc = zlib.crc32(piece, crc)
        at += len(piece)
        go_on()
    return crc
