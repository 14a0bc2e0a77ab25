"""File operations of the content cache: verified copies, hard links and clones, with owner-only permissions.

A cached object may be a hard link to a downloaded file.  The two then share one mode, so both are created for the owner
only.

A copy may be handed out first and verified later.  The body may write to it in the meantime, so a CRC mismatch in the
copy does not prove damage.  In that case the cached object is checked: if its CRC matches and its mtime is unchanged,
the copy was correct as well.
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
from perago.lake.deferred_verification import CheckCancelled
from perago.lake.file_copy import copy_whole, try_clone, try_kernel_copy, write_all

_OWNER_ONLY = 0o700
_CHUNK = 1024 * 1024
_BY_KERNEL = 4 * 1024 * 1024
"""Below this size, reading, hashing and writing a file takes fewer calls than copying it in the kernel."""
_SMALL = 256 * 1024
"""Below this size, a copy costs about as much as creating an empty file, so a clone would save nothing."""
# Processes on two machines that share a folder may have the same id.
_RUN = uuid.uuid4().hex
_numbers = itertools.count()
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_log = logging.getLogger(__name__)


class Unreadable(Exception):
    """Raised if a cached object cannot be read at the moment. Its bytes may still be intact."""


class Check(Protocol):
    """Checks an object's bytes against an expected digest."""

    def update(self, piece: bytes) -> None: ...

    def holds(self) -> bool: ...


class ByMd5:
    """Checks an object's bytes by their MD5."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._found = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        self._found.update(piece)

    def holds(self) -> bool:
        return self._found.hexdigest() == self._wanted


class ByCrc:
    """Checks an object's bytes by their CRC-32."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._found = 0

    def update(self, piece: bytes) -> None:
        self._found = zlib.crc32(piece, self._found)

    def holds(self) -> bool:
        return self._found == self._wanted


def copy_by_kernel(source: int, size: int, target: int) -> bool:
    """Copy a file in the kernel, without checking its bytes. Returns False if that fails or the size is not `size`."""
    if os.fstat(source).st_size != size or not _kernel_copy(source, target):
        return False
    return os.fstat(target).st_size == size


def copy_checked(source: int, size: int, part: str, check: Check) -> bool:
    """Copy a file and check the copy. Returns whether its size and its bytes are correct.

    Raises `Unreadable` if the source cannot be read, and `OSError` if the target cannot be written.
    """
    target = create(part)
    try:
        # If the size differs, the kernel may be unable to copy the file, and it need not be read to its end.
        if size >= _BY_KERNEL and os.fstat(source).st_size == size and _kernel_copy(source, target):
            # Check the copy, not the source: a body may be writing to a hard link to the source.
            return os.fstat(target).st_size == size and _holds(target, check)
        return _copy_by_hand(source, target, size, check)
    finally:
        os.close(target)


def _kernel_copy(source: int, target: int) -> bool:
    """Copy in the kernel. Returns False, leaving the target empty, if the kernel cannot copy the file."""
    try:
        if try_kernel_copy(source, target):
            return True
    except OSError as error:
        # For other errors, copying by hand shows whether the source or the target failed.
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
    # Read one byte more than expected, to detect a file that grew.
    while piece := _read(source, min(_CHUNK, left + 1)):
        left -= len(piece)
        if left < 0:
            return False
        check.update(piece)
        write_all(target, piece)
    return left == 0 and check.holds()


def create(path: str) -> int:
    """Create a file that only its owner can access, and return a read-write descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def files_in(*folders: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the name, size and mtime of every file below these folders.

    Unfinished files, whose names start with a dot, are skipped.
    """
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                if name.startswith("."):
                    continue
                # Another process may have deleted the file.
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(f"{folder}/{name}")
                    yield name, found.st_size, found.st_mtime_ns


def make_private(folder: Path, ours: Collection[str]) -> None:
    """Create a folder that only its owner can access, or restrict an existing one.

    A folder that contains anything not listed in `ours` is assumed to belong to the user, and is left unchanged.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
    if set(os.listdir(folder)) <= set(ours):
        restrict_to_owner(folder)


def restrict_to_owner(path: Path) -> None:
    """Make a file or folder accessible to its owner only, whatever the umask."""
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
    """Return whether a note's first line is the checksum of the rest. Leaves the file positioned after that line."""
    try:
        digest = note.readline(_CHUNK)
        total = hashlib.sha256()
        while piece := note.read(_CHUNK):
            total.update(piece)
        note.seek(len(digest))
    except OSError:
        return False
    return digest == total.hexdigest().encode() + b"\n"


def add_file(file: str, path: str, size: int, *, few: bool = False) -> bool:
    """Add a file to the cache as `path`. Returns False if `path` already exists.

    A large file is cloned if the file system supports it, and a small one is copied if `few` is set.  In both cases,
    later writes to the original do not reach the cache.  Other files are hard-linked if possible, because copies would
    take time and space.
    """
    if os.path.exists(path):
        return False
    try:
        return _add_file(file, path, size, few)
    except FileNotFoundError:
        # This is the first object with these two leading digits. Folders are created on demand, because most of the 256
        # are not needed for a long time.
        os.makedirs(os.path.dirname(path), mode=_OWNER_ONLY, exist_ok=True)
        return _add_file(file, path, size, few)


def _add_file(file: str, path: str, size: int, few: bool) -> bool:
    if size >= _SMALL:
        if _copy_in(file, path, try_clone):
            return True
    elif few:
        return _copy_in(file, path, _copy_all)
    try:
        os.link(file, path)
        return True
    except FileExistsError:
        return False
    except OSError:
        # The file is on another file system, or on one without hard links.
        return _copy_in(file, path, _copy_all)


def _copy_in(file: str, path: str, copy: Callable[[int, int], bool]) -> bool:
    """Copy a file to a temporary name with `copy`, then rename it to `path`. Returns False if `copy` returned False."""
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
    """Delete a file, ignoring errors."""
    with contextlib.suppress(OSError):
        os.unlink(path)


@dataclass(frozen=True, slots=True)
class KnownCrc:
    """A cached object's file, size and CRC. The CRC is valid only as long as the file has this mtime."""

    file: str
    size: int
    crc: int
    mtime: int


@dataclass(frozen=True, slots=True)
class UnverifiedCopy:
    """A copy of the object `path` that is not verified yet. The cached object and the copy are kept open."""

    path: str
    known: KnownCrc
    source: int
    copy: int

    def verify(self, check_cancelled: CheckCancelled) -> None:
        """Verify that the copy was made from intact bytes. Otherwise, drop the cached object and raise `LakeError`."""
        known = self.known
        if _crc(self.copy, known.size, check_cancelled) == known.crc:
            return
        if _crc(self.source, known.size, check_cancelled) == known.crc and _is_unchanged(self.source, known):
            return
        level = logging.WARNING if _is_unchanged(self.source, known) else logging.DEBUG
        _log.log(level, "cached object %s has changed, dropped it", known.file)
        remove(known.file)
        raise LakeError(
            f"object {self.path!r} was damaged in the cache, which has dropped it; try again to fetch it from lakeFS"
        )

    def drop(self) -> None:
        """Close both files."""
        os.close(self.source)
        os.close(self.copy)


def copy_unverified(path: str, known: KnownCrc, part: str) -> UnverifiedCopy | None:
    """Copy a cached object to the new file `part`, deferring its verification.

    Returns None, leaving no file, if the object's CRC is outdated or the kernel cannot copy it. Raises `OSError` if
    `part` cannot be written.
    """
    with contextlib.ExitStack() as undo:
        try:
            source = os.open(known.file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        undo.callback(os.close, source)
        target = create(part)
        undo.callback(remove, part)
        try:
            whole = copy_by_kernel(source, known.size, target)
        finally:
            os.close(target)
        # Checked after the copy, which proves that the object was unchanged until then.
        if not whole or not _is_unchanged(source, known):
            return None
        # Read-only: a program that is open for writing cannot be executed.
        copy = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        undo.pop_all()
        return UnverifiedCopy(path, known, source, copy)


def _is_unchanged(source: int, known: KnownCrc) -> bool:
    return os.fstat(source).st_mtime_ns == known.mtime


def _crc(file: int, size: int, check_cancelled: CheckCancelled) -> int:
    at = crc = 0
    while at < size and (piece := os.pread(file, min(_CHUNK, size - at), at)):
        crc = zlib.crc32(piece, crc)
        at += len(piece)
        check_cancelled()
    return crc
