"""Bytes of the content cache on disk: copied while they are checked, linked or copied in."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
import zlib
from typing import Protocol

_CHUNK = 1024 * 1024


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


def copy_checked(source: int, size: int, part: str, check: Check) -> bool:
    """Copy while checking; true if the size is right and the check holds.

    `Unreadable` where the source fails; an `OSError` is the target's.
    """
    left = size
    target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        # One byte more than is wanted, so that a file that grew is noticed.
        while piece := _read(source, min(_CHUNK, left + 1)):
            left -= len(piece)
            if left < 0:
                return False
            check.update(piece)
            write_all(target, piece)
    finally:
        os.close(target)
    return left == 0 and check.holds()


def _read(source: int, size: int) -> bytes:
    try:
        return os.read(source, size)
    except OSError as error:
        raise Unreadable(error.strerror) from error


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of it, however often the system takes less."""
    written = os.write(file, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(file, data)


def link_in(file: str, path: str) -> None:
    """Give a file a second name, or make a copy where that cannot be."""
    try:
        os.link(file, path)
    except FileExistsError:
        return
    except FileNotFoundError:
        # The first of its two digits; made here, since most of the 256 folders are not needed for long.
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _link_or_copy(file, path)
    except OSError:
        _link_or_copy(file, path)


def _link_or_copy(file: str, path: str) -> None:
    with contextlib.suppress(OSError):
        os.link(file, path)
        return
    part = f"{os.path.dirname(path)}/.{uuid.uuid4().hex}"
    try:
        shutil.copyfile(file, part)
        os.replace(part, path)
    except OSError:
        remove(part)
        raise


def remove(path: str | os.PathLike[str]) -> None:
    """Take a file away, if it is there and can be."""
    with contextlib.suppress(OSError):
        os.unlink(path)
