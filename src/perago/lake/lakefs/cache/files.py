"""Bytes of the content cache on disk: copied while they are checked, linked or copied in, for their owner alone.

A cached object may be a hard link of a downloaded file, so the two have one mode: both are made for their owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import uuid
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

_OWNER_ONLY = 0o700
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
    target = create(part)
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


def create(path: str) -> int:
    """A new file that its owner alone can read, open for writing."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


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


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of it, however often the system takes less."""
    written = os.write(file, data)
    while written < len(data):
        data = memoryview(data)[written:]
        written = os.write(file, data)


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


def link_in(file: str, path: str) -> None:
    """Give a file a second name, or make a copy where that cannot be."""
    try:
        os.link(file, path)
    except FileExistsError:
        return
    except FileNotFoundError:
        # The first of its two digits; made here, since most of the 256 folders are not needed for long.
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=_OWNER_ONLY)
        _link_or_copy(file, path)
    except OSError:
        _link_or_copy(file, path)


def _link_or_copy(file: str, path: str) -> None:
    with contextlib.suppress(OSError):
        os.link(file, path)
        return
    part = f"{os.path.dirname(path)}/.{uuid.uuid4().hex}"
    try:
        with open(file, "rb") as source, open(create(part), "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
        os.replace(part, path)
    except OSError:
        remove(part)
        raise


def remove(path: str | os.PathLike[str]) -> None:
    """Take a file away, if it is there and can be."""
    with contextlib.suppress(OSError):
        os.unlink(path)
