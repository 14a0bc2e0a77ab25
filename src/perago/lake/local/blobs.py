"""The bytes of the embedded lake: small objects in the database, larger ones as files.

A small object is not synced separately: it reaches the disk with the transaction that publishes it.  A larger one is
on disk before the database refers to it.  The size alone decides where an object is stored.  Every checksum is
computed here, whatever the caller claims.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from perago.errors import LakeError
from perago.lake.base import Download, Progress, Upload
from perago.lake.file_copy import write_all
from perago.lake.local.blob_files import ALGORITHM, Files, atomic_file, check_unchanged
from perago.lake.local.store import Store

MOST_IN_DATABASE = 16 * 1024

_BLOBS_PER_BATCH = 256
_THREADS = 4
_FEW = 3

T = TypeVar("T")


class Objects:
    """The objects of one lake, by checksum."""

    def __init__(self, store: Store, files: Files) -> None:
        self._store = store
        self._files = files

    def add(self, uploads: Sequence[Upload], progress: Progress | None) -> list[tuple[int, str]]:
        """Add files, and return their sizes and checksums.

        Raises `LakeError` if a file's bytes do not match its checksum.
        """
        small = [upload for upload in uploads if upload.size <= MOST_IN_DATABASE]
        large = [upload for upload in uploads if upload.size > MOST_IN_DATABASE]
        for at in range(0, len(small), _BLOBS_PER_BATCH):
            batch = small[at : at + _BLOBS_PER_BATCH]
            self._store.add_blobs([(upload.checksum, _small_bytes(upload)) for upload in batch])
            _report(progress, batch)

        def add_one(upload: Upload) -> None:
            self._files.add_file(upload)
            _report(progress, [upload])

        _in_parallel(add_one, large)
        self._files.sync(upload.checksum for upload in large)
        return [(upload.size, upload.checksum) for upload in uploads]

    def add_bytes(self, content: bytes) -> tuple[int, str]:
        """Add bytes, and return their size and checksum."""
        checksum = hashlib.new(ALGORITHM, content).hexdigest()
        if len(content) <= MOST_IN_DATABASE:
            self._store.add_blobs([(checksum, content)])
        else:
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                self.add([Upload(Path(file.name), "", len(content), checksum)], None)
        return len(content), checksum

    def missing(self, db: sqlite3.Connection, objects: Iterable[tuple[int, str]]) -> bool:
        """Return whether one of these objects, given by size and checksum, is not there in this transaction."""
        sql = "SELECT 1 FROM blobs WHERE id = ?"
        return any(
            db.execute(sql, (checksum,)).fetchone() is None
            if size <= MOST_IN_DATABASE
            else not self._files.file(checksum).exists()
            for size, checksum in objects
        )

    def copy_out(self, downloads: Sequence[tuple[Download, str]], progress: Progress | None) -> None:
        """Write objects, given by checksum, to files.  Each file appears only when it is complete."""

        def copy_one(download: tuple[Download, str]) -> None:
            file, checksum = download
            try:
                self._copy_to(checksum, file.entry.size, file.target)
            except OSError as error:
                raise LakeError(
                    f"cannot write {file.entry.path} to {file.target}: {error.strerror}"
                ) from error
            if progress is not None:
                progress(1, file.entry.size)

        # A small object costs no more than creating its file, without waiting for the disk: threads would only contend.
        for download in downloads:
            if download[0].entry.size <= MOST_IN_DATABASE:
                copy_one(download)
        _in_parallel(copy_one, [file for file in downloads if file[0].entry.size > MOST_IN_DATABASE])

    def pieces(self, checksum: str, size: int) -> Iterator[bytes]:
        """Return an iterator over an object's bytes, in chunks."""
        if size <= MOST_IN_DATABASE:
            return iter([self._blob(checksum, size)])
        return self._files.pieces(checksum, size)

    def part(self, checksum: str, size: int, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`."""
        if size <= MOST_IN_DATABASE:
            return self._blob(checksum, size)[start : start + length]
        return self._files.part(checksum, size, start, length)

    def problem(self, checksum: str, size: int) -> str | None:
        """Return a description of the problem with an object, or None if it is intact."""
        try:
            total = hashlib.new(ALGORITHM)
            for piece in self.pieces(checksum, size):
                total.update(piece)
        except LakeError as error:
            return str(error)
        return None if total.hexdigest() == checksum else "has other bytes than its checksum says"

    def _copy_to(self, checksum: str, size: int, target: Path) -> None:
        if size > MOST_IN_DATABASE:
            self._files.copy_to(checksum, size, target)
            return
        body = self._blob(checksum, size)
        with atomic_file(target) as out:
            write_all(out, body)

    def _blob(self, checksum: str, size: int) -> bytes:
        body = self._store.body("blobs", checksum)
        if body is None:
            raise LakeError(f"object {checksum} is missing from the embedded lake")
        if len(body) != size:
            raise LakeError(f"object {checksum} of the embedded lake has {len(body)} bytes and not {size}")
        return body


def _small_bytes(upload: Upload) -> bytes:
    """Return a small file's bytes.  Raises `LakeError` if they do not match the upload's size and checksum."""
    try:
        with open(upload.source, "rb", buffering=0) as source:
            body = source.read(MOST_IN_DATABASE + 1)
    except OSError as error:
        raise LakeError(f"cannot take {upload.path} in from {upload.source}: {error.strerror}") from error
    check_unchanged(upload, len(body), hashlib.new(ALGORITHM, body).hexdigest())
    return body


def _report(progress: Progress | None, uploads: Sequence[Upload]) -> None:
    if progress is not None:
        progress(len(uploads), sum(upload.size for upload in uploads))


def _in_parallel(call: Callable[[T], None], items: Sequence[T]) -> None:
    """Call a function for every item, on several threads if there are enough items.

    Threads help, because most of the time is spent waiting for the disk.
    """
    if len(items) < _FEW:
        for item in items:
            call(item)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        # Consume the results, so that an error is raised here.
        list(pool.map(call, items))
