"""Putting one file onto a branch: the bytes that arrive are the bytes that the caller hashed, or it is an error.

S3 takes 10,000 parts of an object and no more, so the parts of a file above 78 GiB are larger than usual, up to 525 MiB
for one of 5 TiB, the largest there can be.  A part is in memory until it has arrived, so of larger parts fewer are under
way at once: never more than the budget holds, but always one, and one being filled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from perago.errors import LakeError
from perago.lake.base import Progress, Upload
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.concurrency import Budget
from perago.lake.lakefs.transfer.gateway import Stores, is_sayable
from perago.lake.lakefs.transfer.routing import Parts, Sink

_MIB = 1024 * 1024
_PARTS_AT_ONCE = 4
_PIECE = _MIB


def parts_of(size: int, options: Options, room: int) -> Parts:
    """How a file of this size goes in parts, with so many bytes of room for them."""
    least = -(-size // options.most_parts)
    part = max(options.part_bytes, -(-least // _MIB) * _MIB)
    # One more is being filled.
    return Parts(part, max(1, min(_PARTS_AT_ONCE, room // part - 1)))


class Putter:
    """Puts files onto one branch of one repository: those that `past` has a sink for by that, others by the gateway."""

    def __init__(
        self,
        stores: Stores,
        past: Callable[[int], Sink | None],
        budget: Budget,
        options: Options,
        where: tuple[str, str],
    ) -> None:
        self._stores = stores
        self._past = past
        self._budget = budget
        self._options = options
        self._repository, self._branch = where

    def put(self, file: Upload, progress: Progress | None) -> None:
        """Upload a file; `LakeError` if it is not, or no longer, what the caller saw."""
        past = self._past(file.size)
        sink: Sink = past or self._stores
        if past is None and not is_sayable(file.path):
            self._by_api(file)
        elif file.size <= self._options.multipart_bytes:
            self._small(file, sink)
        else:
            self._large(file, sink)
        if progress is not None:
            progress(1, file.size)

    def _by_api(self, file: Upload) -> None:
        for _ in self._pieces(file, []):
            """Hashed before it is sent: the API takes the file itself."""
        self._stores.put_by_api(self._repository, self._branch, file.path, file.source)

    def _small(self, file: Upload, sink: Sink) -> None:
        with self._budget.hold(file.size):
            data = self._read(file)
            sink.again(
                self._doing(file),
                lambda: sink.put(self._repository, self._branch, file.path, data, file.checksum),
            )

    def _large(self, file: Upload, sink: Sink) -> None:
        parts = parts_of(file.size, self._options, self._budget.limit)
        # Those under way, the one being filled, and what is read for it.
        held = parts.size * (parts.at_once + 1) + _PIECE
        with self._budget.hold(held):
            sink.again(self._doing(file), lambda: self._stream(file, sink, parts))

    def _read(self, file: Upload) -> bytes:
        try:
            with open(file.source, "rb", buffering=0) as source:
                # One byte more, so that a file that grew is noticed.
                data = source.read(file.size + 1)
        except OSError as error:
            raise LakeError(f"{self._doing(file)}: cannot read {file.source}: {error.strerror}") from error
        # Looked at before it is sent: the object must not appear with other bytes, not even for a moment.
        if len(data) != file.size or hashlib.md5(data, usedforsecurity=False).hexdigest() != file.checksum:
            raise self._changed(file)
        return data

    def _stream(self, file: Upload, sink: Sink, parts: Parts) -> None:
        problem: list[LakeError] = []
        try:
            pieces = self._pieces(file, problem)
            sink.put_parts(self._repository, self._branch, file.path, (pieces, parts), file.checksum)
        except Exception as error:
            # The library puts what the iterator raises into an error of its own.
            raise problem[0] if problem else error from error

    def _pieces(self, file: Upload, problem: list[LakeError]) -> Iterator[bytes]:
        """The file piece by piece; for a changed file the error comes before the last one, so nothing appears."""
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
