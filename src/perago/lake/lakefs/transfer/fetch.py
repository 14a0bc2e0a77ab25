"""Fetches one object into a temporary file and verifies it.  The caller may allow its MD5 to be completed later."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from perago.errors import LakeError, LakeUnavailable
from perago.lake.base import Download, Entry, Progress
from perago.lake.file_copy import write_all
from perago.lake.lakefs.cache.files import create
from perago.lake.lakefs.checksums import OddChecksums, fits, fits_whole
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.hashing import Hashers, PartialMd5
from perago.lake.lakefs.transfer.routing import Buffer, Source

_AHEAD = 4
_TINY = 64 * 1024
_CHUNK = 1024 * 1024
# Processes on two machines that share a folder may have the same id.
_RUN = uuid.uuid4().hex
_numbers = itertools.count()


def part_name(target: Path) -> str:
    """Return a new temporary path next to `target`.

    Its name is short, so that it is valid even if the target's name has the maximum length.
    """
    return f"{os.path.dirname(target)}/.perago-{os.getpid()}-{_RUN}-{next(_numbers)}.part"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part file with an object's bytes, their MD5 and, if the object is large, their CRC.

    `confirmed` says whether the bytes match the object's checksum. If the MD5 is `partial`, this is not known yet.
    """

    md5: str
    part: str
    crc: int | None = None
    confirmed: bool = True
    partial: PartialMd5 | None = None


@dataclass(frozen=True, slots=True)
class HelperThreads:
    """Helper threads for the fetching threads: they fetch ranges of large objects and compute hashes."""

    ranges: ThreadPoolExecutor
    hashers: Hashers


class Fetcher:
    """Fetches objects at one ref of one repository."""

    def __init__(
        self,
        source: Source,
        budget: MemoryBudget,
        helpers: HelperThreads,
        options: Options,
        where: tuple[str, str],
        *,
        odd: OddChecksums,
    ) -> None:
        self._source = source
        self._budget = budget
        self._helpers = helpers
        self._options = options
        self._repository, self._ref = where
        self._odd = odd

    def is_large(self, file: Download) -> bool:
        """Return whether an object is large enough to be streamed. Its bytes are then reported as they arrive."""
        return file.entry.size > self._options.part_bytes

    def fetch(self, file: Download, progress: Progress | None, *, may_defer: bool = False) -> Fetched:
        """Fetch an object into a part file and verify it. With `may_defer`, its MD5 may be left to be completed later.

        Raises `LakeError` if two transfers differ and neither matches the checksum. If two transfers are equal but do
        not match it, the bytes are accepted: the checksum is not a hash of them.
        """
        wanted = file.entry.checksum
        part = part_name(file.target)
        try:
            first = self._once(file, part, progress, may_defer=may_defer)
            if first.partial is not None or wanted is None or _fits(file.entry, first):
                return first
            os.unlink(part)
            second = self._once(file, part, None)
            if second.md5 == first.md5:
                # The bytes were not damaged in transit: the checksum is just not a hash of them.
                self.odd(file.entry)
                return replace(second, confirmed=False)
            if _fits(file.entry, second):
                return second
            raise self.differing(file.entry, first.md5, second.md5)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise

    def stream(self, entry: Entry) -> Iterator[Buffer]:
        """Stream an object's bytes. Also works after the download has ended."""
        return self._source.stream(self._repository, self._ref, entry.path, _CHUNK)

    def differing(self, entry: Entry, first: str, second: str) -> LakeError:
        """Return the error for two transfers with different MD5s."""
        return LakeError(
            f"{self.doing(entry)}: two transfers gave different bytes (MD5 {first} and {second}), and neither is that of "
            f"its checksum {entry.checksum}; it is damaged on its way, try again"
        )

    def odd(self, entry: Entry) -> None:
        """Warn about an object whose checksum is not a hash of its bytes."""
        self._odd.found(self._repository, entry)

    def doing(self, entry: Entry) -> str:
        """Return a description of the download, for error messages."""
        return f"download object {entry.path!r} at {self._ref!r} of repository {self._repository!r}"

    def _once(
        self, file: Download, part: str, progress: Progress | None, *, may_defer: bool = False
    ) -> Fetched:
        if not self.is_large(file):
            return Fetched(self._small(file, part), part)
        digest = self._helpers.hashers.stream(may_defer=may_defer)
        out = create(part)
        try:
            for piece in self._pieces(file):
                digest.update(piece)
                write_all(out, piece)
                if progress is not None:
                    progress(0, len(piece))
        except BaseException:
            digest.drop()
            raise
        finally:
            os.close(out)
        got = digest.result()
        if got.size != file.entry.size:
            raise LakeUnavailable(
                f"{self.doing(file.entry)}: {got.size} bytes arrived, not {file.entry.size}"
            )
        return Fetched(got.md5, part, got.crc, partial=got.partial)

    def _small(self, file: Download, part: str) -> str:
        size = file.entry.size
        # Tiny objects do not count towards the budget: even many of them cannot exhaust the memory.
        counted = size if size > _TINY else 0
        if counted:
            self._budget.take(counted, wait=True)
        try:
            data = self._sized(
                file, size, lambda: self._source.get(self._repository, self._ref, file.entry.path)
            )
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            out = create(part)
            try:
                write_all(out, data)
            finally:
                os.close(out)
        finally:
            if counted:
                self._budget.give_back(counted)
        return md5

    def _pieces(self, file: Download) -> Iterator[Buffer]:
        """Yield a large object's bytes: from one stream, or from parallel ranges if it is very large."""
        if file.entry.size > self._options.ranges_above_bytes:
            return self._in_ranges(file)
        return self.stream(file.entry)

    def _in_ranges(self, file: Download) -> Iterator[Buffer]:
        """Yield the object's ranges in order, keeping the next few in flight."""
        size, step = file.entry.size, self._options.part_bytes
        spans = deque((at, min(at + step, size)) for at in range(0, size, step))
        in_flight: deque[tuple[int, Future[Buffer]]] = deque()
        try:
            while spans or in_flight:
                # Waiting for memory while holding some could deadlock two downloads.
                while spans and len(in_flight) < _AHEAD:
                    length = spans[0][1] - spans[0][0]
                    if not self._budget.take(length, wait=not in_flight):
                        break
                    in_flight.append(
                        (length, self._helpers.ranges.submit(self._range, file, spans.popleft()))
                    )
                length, piece = in_flight[0]
                yield piece.result()
                in_flight.popleft()
                self._budget.give_back(length)
        finally:
            for length, piece in in_flight:
                piece.cancel()
                self._budget.give_back(length)

    def _range(self, file: Download, span: tuple[int, int]) -> Buffer:
        path = file.entry.path
        return self._sized(
            file, span[1] - span[0], lambda: self._source.get_range(self._repository, self._ref, path, span)
        )

    def _sized(self, file: Download, size: int, get: Callable[[], Buffer]) -> Buffer:
        """Return the bytes from `get`, retrying if they do not have this size."""

        def checked() -> Buffer:
            data = get()
            if len(data) != size:
                raise LakeUnavailable(f"{self.doing(file.entry)}: {len(data)} bytes arrived, not {size}")
            return data

        return self._source.retry(self.doing(file.entry), checked)


def _fits(entry: Entry, got: Fetched) -> bool:
    if fits_whole(got.md5, entry.checksum or ""):
        return True
    source = os.open(got.part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fits(got.md5, entry, source)
    finally:
        os.close(source)
