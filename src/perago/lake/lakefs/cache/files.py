"""Bytes of the content cache on disk: copied and checked, linked or copied in, for their owner alone.

A large cached object may be a hard link of a downloaded file, so the two have one mode: both are made for their owner alone.

A copy out of the cache that is handed out first and checked afterwards.

The body may write into its copy while that is checked, so a copy whose CRC is another one proves nothing.  Then the object
that it was copied from is looked at: if that was not written since its CRC was noted, the copy was made of what it holds.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import logging
import os
import stat
import uuid
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from perago.errors import LakeError
from perago.lake.deferred_verification import GoOn
from perago.lake.file_copy import cloned, copied_by_kernel, copy_whole, write_all

_OWNER_ONLY = 0o700
_CHUNK = 1024 * 1024
_BY_KERNEL = 4 * 1024 * 1024
"""Smaller files are read, hashed and written in fewer calls than it takes to ask the kernel."""
_SMALL = 256 * 1024
"""Below it a copy costs about what making a file does, and a clone no less."""
# Two machines may share a folder, and a process id.
_RUN = uuid.uuid4().hex
_numbers = itertools.count()
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Unreadable(Exception):
    """A cached object that cannot be read now: nothing is known of its bytes."""


class Check(Protocol):
    """Takes an object's bytes, and says whether they are those wanted."""

    def update(self, piece: bytes) -> None: ...

    def holds(self) -> bool: ...


class ByMd5:
    """By the MD5 of the bytes."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._found = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        self._found.update(piece)

    def holds(self) -> bool:
        return self._found.hexdigest() == self._wanted


class ByCrc:
    """By the CRC-32 of the bytes."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._found = 0

    def update(self, piece: bytes) -> None:
        self._found = zlib.crc32(piece, self._found)

    def holds(self) -> bool:
        return self._found == self._wanted


def copied_whole(source: int, size: int, target: int) -> bool:
    """Have the kernel copy a file of this size; false, with an empty target, where it cannot.  Nothing is checked."""
    if os.fstat(source).st_size != size or not _copied(source, target):
        return False
    return os.fstat(target).st_size == size


def copy_checked(source: int, size: int, part: str, check: Check) -> bool:
    """Copy, and check what the copy holds; true if the size is right and the check holds.

    `Unreadable` where the source fails; an `OSError` is the target's.
    """
    target = create(part)
    try:
        # A file of another size may be none that the kernel can copy, and is read only as far as it must be.
        if size >= _BY_KERNEL and os.fstat(source).st_size == size and _copied(source, target):
            # The copy is checked, not the source: a body may be writing into a file that is linked to it.
            return os.fstat(target).st_size == size and _holds(target, check)
        return _copy_by_hand(source, target, size, check)
    finally:
        os.close(target)


def _copied(source: int, target: int) -> bool:
    """Have the kernel copy; false, with an empty target, where it cannot."""
    try:
        if copied_by_kernel(source, target):
            return True
    except OSError as error:
        # Of other failures it shows whose they are when it is done by hand.
        if error.errno in _FULL:
            raise
    os.ftruncate(target, 0)
    for file in (source, target):
        os.lseek(file, 0, os.SEEK_SET)
    return False


def _holds(file: int, check: Check) -> bool:
    at = 0
    while piece := os.pread(file, _CHUNK, at):
        check.update(piece)
        at += len(piece)
    return check.holds()


def _copy_by_hand(source: int, target: int, size: int, check: Check) -> bool:
    left = size
    # One byte more than is wanted, so that a file that grew is noticed.
    while piece := _read(source, min(_CHUNK, left + 1)):
        left -= len(piece)
        if left < 0:
            return False
        check.update(piece)
        write_all(target, piece)
    return left == 0 and check.holds()


def create(path: str) -> int:
    """A new file that its owner alone can read, open for reading and writing."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def files_in(*folders: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of change of every file in these folders, at any depth; unfinished ones (`.…`) left out."""
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                if name.startswith("."):
                    continue
                # Another process may throw it out in the meantime.
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(f"{folder}/{name}")
                    yield name, found.st_size, found.st_mtime_ns


def make_private(folder: Path, ours: Collection[str]) -> None:
    """Have a folder that only its owner can look into, also where it was there, and open, before.

    One that holds anything but `ours` is somebody's, and stays as it is.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
    if set(os.listdir(folder)) <= set(ours):
        close_to_others(folder)


def close_to_others(path: Path) -> None:
    """Take away what others may do with a file or folder; its owner may read and write it, whatever the umask."""
    mode = stat.S_IMODE(path.stat().st_mode)
    wanted = _OWNER_ONLY if path.is_dir() else 0o600
    if mode != wanted:
        path.chmod(wanted)


def _read(source: int, size: int) -> bytes:
    try:
        return os.read(source, size)
    except OSError as error:
        raise Unreadable(error.strerror) from error


def is_whole(note: BinaryIO) -> bool:
    """Whether a note's first line is the checksum of the rest, where the note then stands."""
    try:
        digest = note.readline(_CHUNK)
        total = hashlib.sha256()
        while piece := note.read(_CHUNK):
            total.update(piece)
        note.seek(len(digest))
    except OSError:
        return False
    return digest == total.hexdigest().encode() + b"\n"


def take_in(file: str, path: str, size: int, *, few: bool = False) -> bool:
    """Have the bytes of a file under a second name; false where that name is taken.

    A clone of a large file where the file system can, a copy of a small one that is one of a few: whatever is then written
    into the file does not reach it.  Any other gets a second name (a hard link): copies would take time and room.
    """
    if os.path.exists(path):
        return False
    try:
        return _take_in(file, path, size, few)
    except FileNotFoundError:
        # The first of its two digits; made here, since most of the 256 folders are not needed for long.
        os.makedirs(os.path.dirname(path), mode=_OWNER_ONLY, exist_ok=True)
        return _take_in(file, path, size, few)


def _take_in(file: str, path: str, size: int, few: bool) -> bool:
    if size >= _SMALL:
        if _copied_in(file, path, cloned):
            return True
    elif few:
        return _copied_in(file, path, _copy_all)
    try:
        os.link(file, path)
        return True
    except FileExistsError:
        return False
    except OSError:
        # Another file system, or one without links.
        return _copied_in(file, path, _copy_all)


def _copied_in(file: str, path: str, copy: Callable[[int, int], bool]) -> bool:
    """Copy a file under another name, and give it its own when it is whole; false where `copy` cannot."""
    part = f"{os.path.dirname(path)}/.{_RUN}-{os.getpid()}-{next(_numbers)}"
    source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = create(part)
        try:
            done = copy(source, target)
        finally:
            os.close(target)
        if done:
            os.rename(part, path)
        else:
            os.unlink(part)
        return done
    except FileNotFoundError:
        raise
    except BaseException:
        remove(part)
        raise
    finally:
        os.close(source)


def _copy_all(source: int, target: int) -> bool:
    copy_whole(source, target)
    return True


def remove(path: str | os.PathLike[str]) -> None:
    """Take a file away, if it is there and can be."""
    with contextlib.suppress(OSError):
        os.unlink(path)


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
