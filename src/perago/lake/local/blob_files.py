"""The embedded lake's larger objects: files named by the checksum of their content.

The rules: a file is moved to its final name only when its bytes are complete and on disk, so every named file is a
whole object.  An object is never rewritten (mode 0444) and never hard-linked, so nothing that a task does in its
workdir can affect it.  Copies are reflinks where the file system supports them.  A reflink takes no space until one
side changes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perago.errors import LakeError
from perago.lake.base import Upload
from perago.lake.file_copy import copy_whole

ALGORITHM = "sha256"

_PIECE = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Files:
    """The folder of larger objects: each is a file whose name is its checksum."""

    def __init__(self, folder: Path) -> None:
        self._objects = folder / "objects"
        self._incoming = folder / "incoming"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._incoming.mkdir(exist_ok=True)

    def file(self, checksum: str) -> Path:
        """Return the path of the file with this checksum."""
        return self._objects / checksum[:2] / checksum[2:]

    def drop_partial_files(self, before: float) -> None:
        """Remove the partial files that killed processes left behind.

        Only files last written before `before`, in seconds since the epoch, are removed.
        """
        for part in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < before:
                    part.unlink()

    def older_than(self, since_ns: int) -> list[tuple[str, int]]:
        """Return the checksum and size of every object last written before a time, in nanoseconds since the epoch."""
        found = []
        for folder in self._objects.iterdir():
            for file in folder.iterdir():
                with suppress(FileNotFoundError):
                    seen = file.stat()
                    if seen.st_mtime_ns < since_ns:
                        found.append((folder.name + file.name, seen.st_size))
        return found

    def remove(self, checksum: str) -> bool:
        """Remove an object.  Returns False if it is gone already, or cannot be removed."""
        try:
            self.file(checksum).unlink()
        except OSError:
            return False
        return True

    def add_file(self, upload: Upload) -> None:
        """Add a file.  On return, its bytes have been synced to disk.  `sync` does the same for its name."""
        part = self._incoming / uuid.uuid4().hex
        try:
            with open(upload.source, "rb", buffering=0) as source:
                if self._has(upload):
                    check_unchanged(upload, os.fstat(source.fileno()).st_size, _digest(source.fileno()))
                    return
                out = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
                try:
                    copy_whole(source.fileno(), out)
                    # Hash the copy rather than the source, because something may still be writing to the source.
                    check_unchanged(upload, os.fstat(out).st_size, _digest(out))
                    os.fsync(out)
                finally:
                    os.close(out)
            self._name(part, upload.checksum)
        except OSError as error:
            room = f"; make room on the disk of the lake, {self._objects}" if error.errno in _FULL else ""
            raise LakeError(
                f"cannot take {upload.path} in from {upload.source}: {error.strerror}{room}"
            ) from error
        finally:
            with suppress(FileNotFoundError):
                part.unlink()

    def sync(self, checksums: Iterable[str]) -> None:
        """Sync the names of added objects to disk, even if another process created them and has not synced them yet."""
        folders = sorted({self.file(checksum).parent for checksum in checksums})
        for folder in [*folders, self._objects] if folders else ():
            _sync_folder(folder)

    def pieces(self, checksum: str, size: int) -> Iterator[bytes]:
        """Yield an object's bytes in chunks."""
        with open(self._open_checked(checksum, size), "rb") as source:
            while piece := source.read(_PIECE):
                yield piece

    def part(self, checksum: str, size: int, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`."""
        with open(self._open_checked(checksum, size), "rb") as source:
            source.seek(start)
            return source.read(length)

    def copy_to(self, checksum: str, size: int, target: Path) -> None:
        """Write an object's bytes to a file.  The file appears only when it is complete."""
        source = self._open_checked(checksum, size)
        try:
            with atomic_file(target) as out:
                copy_whole(source, out)
                if os.fstat(out).st_size != size:
                    raise LakeError(f"object {checksum} was not copied completely to {target}")
        finally:
            os.close(source)

    def _open_checked(self, checksum: str, size: int) -> int:
        """Open an object for reading.  Raises `LakeError` if it is missing or has a different size."""
        try:
            source = os.open(self.file(checksum), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LakeError(f"object {checksum} is missing from the embedded lake") from None
        found = os.fstat(source).st_size
        if found != size:
            os.close(source)
            raise LakeError(f"object {checksum} of the embedded lake has {found} bytes and not {size}")
        return source

    def _has(self, upload: Upload) -> bool:
        try:
            return os.stat(self.file(upload.checksum)).st_size == upload.size
        except FileNotFoundError:
            return False

    def _name(self, part: Path, checksum: str) -> None:
        target = self.file(checksum)
        try:
            os.rename(part, target)
        except FileNotFoundError:
            target.parent.mkdir(exist_ok=True)
            os.rename(part, target)


def check_unchanged(upload: Upload, size: int, digest: str) -> None:
    """Raise `LakeError` unless the size and digest match those in the upload."""
    if (size, digest) != (upload.size, upload.checksum):
        raise LakeError(
            f"{upload.path} changed while it was uploaded: something still writes to {upload.source}"
        )


@contextmanager
def atomic_file(target: Path) -> Iterator[int]:
    """Yield a descriptor to write to.  If the block succeeds, the file becomes `target`; otherwise it is removed."""
    part = target.with_name(f".perago-{uuid.uuid4().hex}")
    out = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            yield out
        finally:
            os.close(out)
        os.rename(part, target)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def _digest(descriptor: int) -> str:
    total = hashlib.new(ALGORITHM)
    at = 0
    while piece := os.pread(descriptor, _PIECE, at):
        total.update(piece)
        at += len(piece)
    return total.hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
