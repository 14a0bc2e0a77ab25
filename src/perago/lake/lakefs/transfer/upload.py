"""Uploads one file to a branch, and fails unless the bytes that arrive are the ones that the caller hashed.

S3 accepts at most 10,000 parts per object, so the parts of a file above 78 GiB are larger than usual: up to 525 MiB for
a file of 5 TiB, the largest possible.  A part is in memory until it has arrived, so fewer large parts are in flight at
once: never more than the memory budget allows, but always at least one, plus the one being filled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from perago.errors import LakeError
from perago.lake.base import Progress, Upload
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.gateway import Gateway, is_s3_key
from perago.lake.lakefs.transfer.routing import Parts, Sink

_MIB = 1024 * 1024
_PARTS_AT_ONCE = 4
_PIECE = _MIB


def parts_of(size: int, options: Options, room: int) -> Parts:
    """Return the part size and the number of parts in flight for a file of this size, given `room` bytes of memory."""
    least = -(-size // options.most_parts)
    part = max(options.part_bytes, -(-least // _MIB) * _MIB)
    # Minus one: another part is being filled.
    return Parts(part, max(1, min(_PARTS_AT_ONCE, room // part - 1)))


class Uploader:
    """Uploads files to one branch: to the sink that `direct_sink` returns for their size, or else to the gateway."""

    def __init__(
        self,
        gateway: Gateway,
        direct_sink: Callable[[int], Sink | None],
        budget: MemoryBudget,
        options: Options,
        where: tuple[str, str],
    ) -> None:
        self._gateway = gateway
        self._direct_sink = direct_sink
        self._budget = budget
        self._options = options
        self._repository, self._branch = where

    def upload(self, file: Upload, progress: Progress | None) -> None:
        """Upload a file. Raises `LakeError` if it changed since the caller hashed it."""
        direct = self._direct_sink(file.size)
        sink: Sink = direct or self._gateway
        if direct is None and not is_s3_key(file.path):
            self._by_api(file)
        elif file.size <= self._options.multipart_bytes:
            self._small(file, sink)
        else:
            self._large(file, sink)
        if progress is not None:
            progress(1, file.size)

    def _by_api(self, file: Upload) -> None:
        # The API reads the file itself, so check the hash beforehand.
        for _ in self._pieces(file, []):
            pass
        self._gateway.put_by_api(self._repository, self._branch, file.path, file.source)

    def _small(self, file: Upload, sink: Sink) -> None:
        with self._budget.hold(file.size):
            data = self._read(file)
            sink.retry(
                self._doing(file),
                lambda: sink.put(self._repository, self._branch, file.path, data, file.checksum),
            )

    def _large(self, file: Upload, sink: Sink) -> None:
        parts = parts_of(file.size, self._options, self._budget.limit)
        # The parts in flight, the one being filled, and the piece being read.
        held = parts.size * (parts.parallel + 1) + _PIECE
        with self._budget.hold(held):
            sink.retry(self._doing(file), lambda: self._stream(file, sink, parts))

    def _read(self, file: Upload) -> bytes:
        try:
            with open(file.source, "rb", buffering=0) as source:
                # Read one byte more than expected, to detect a file that grew.
                data = source.read(file.size + 1)
        except OSError as error:
            raise LakeError(f"{self._doing(file)}: cannot read {file.source}: {error.strerror}") from error
        # Check before sending: the object must not appear with the wrong bytes, not even for a moment.
        if len(data) != file.size or hashlib.md5(data, usedforsecurity=False).hexdigest() != file.checksum:
            raise self._changed(file)
        return data

    def _stream(self, file: Upload, sink: Sink, parts: Parts) -> None:
        problem: list[LakeError] = []
        try:
            pieces = self._pieces(file, problem)
            sink.put_parts(self._repository, self._branch, file.path, (pieces, parts), file.checksum)
        except Exception as error:
            # The library wraps errors from the iterator in its own exception.
            raise problem[0] if problem else error from error

    def _pieces(self, file: Upload, problem: list[LakeError]) -> Iterator[bytes]:
        """Yield the file in pieces. Raises before the last piece if the file changed, so the object never appears."""
        total = hashlib.md5(usedforsecurity=False)
        left = file.size
        try:
            with open(file.source, "rb", buffering=0) as source:
                while piece := source.read(_PIECE):
                    left -= len(piece)
                    total.update(piece)
                    if left <= 0 and (left < 0 or source.read(1) or total.hexdigest() != file.checksum):
                        raise self._changed(file)
                    yield piece
            if left > 0:
                raise self._changed(file)
        except OSError as error:
            problem.append(LakeError(f"{self._doing(file)}: cannot read {file.source}: {error.strerror}"))
            raise
        except LakeError as error:
            problem.append(error)
            raise

    def _changed(self, file: Upload) -> LakeError:
        return LakeError(
            f"{self._doing(file)}: {file.source} changed after it was hashed; is something still writing to it?"
        )

    def _doing(self, file: Upload) -> str:
        return f"upload object {file.path!r} to branch {self._branch!r} of repository {self._repository!r}"
