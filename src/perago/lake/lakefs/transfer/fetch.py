"""Fetching one object into one file under a temporary name, verified, or with the rest of its MD5 left to the caller."""

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
from perago.lake.lakefs.transfer.concurrency import Budget
from perago.lake.lakefs.transfer.hashing import Hashers, Left
from perago.lake.lakefs.transfer.routing import Buffer, Source

_AHEAD = 4
_TINY = 64 * 1024
_CHUNK = 1024 * 1024
# Two machines may share a folder, and a process id.
_RUN = uuid.uuid4().hex


_numbers = itertools.count()


def part_name(target: Path) -> str:
    """A new name next to `target`, short however long that one is."""
    return f"{os.path.dirname(target)}/.perago-{os.getpid()}-{_RUN}-{next(_numbers)}.part"


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part file with an object's bytes, their MD5, the CRC of a large one, and whether a checksum vouches for them.

    If the MD5 is `left`, nothing does yet.
    """

    md5: str
    part: str
    crc: int | None = None
    vouched_for: bool = True
    left: Left | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs beside the threads that fetch: those that get ranges of large objects, and those that hash."""

    ranges: ThreadPoolExecutor
    hashers: Hashers


class Getter:
    """Fetches objects of one ref of one repository."""

    def __init__(
        self,
        stores: Source,
        budget: Budget,
        beside: Beside,
        options: Options,
        where: tuple[str, str],
        *,
        odd: OddChecksums,
    ) -> None:
        self._stores = stores
        self._budget = budget
        self._beside = beside
        self._options = options
        self._repository, self._ref = where
        self._odd = odd

    def is_large(self, file: Download) -> bool:
        """Whether an object is streamed, and its bytes are reported as they come."""
        return file.entry.size > self._options.part_bytes

    def fetch(self, file: Download, progress: Progress | None, *, may_leave: bool = False) -> Fetched:
        """Get an object into a part file, verified; its MD5 may be left if that is said."""
        wanted = file.entry.checksum
        part = part_name(file.target)
        try:
            first = self._once(file, part, progress, may_leave=may_leave)
            if first.left is not None or wanted is None or _fits(file.entry, first):
                return first
            os.unlink(part)
            second = self._once(file, part, None)
            if second.md5 == first.md5:
                # Neither damaged on the way, nor in a form that anything can be compared with.
                self.odd(file.entry)
                return replace(second, vouched_for=False)
            if _fits(file.entry, second):
                return second
            raise self.differing(file.entry, first.md5, second.md5)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise

    def stream(self, entry: Entry) -> Iterator[Buffer]:
        """An object's bytes once more; this may be done after the download."""
        return self._stores.stream(self._repository, self._ref, entry.path, _CHUNK)

    def differing(self, entry: Entry, first: str, second: str) -> LakeError:
        """The error of two transfers with these MD5s."""
        return LakeError(
            f"{self.doing(entry)}: two transfers gave other bytes (MD5 {first} and {second}), and neither is that of its "
            f"checksum {entry.checksum}; it is damaged on its way, try again"
        )

    def odd(self, entry: Entry) -> None:
        """Note that two transfers of an object were equal, and its checksum is no hash of them."""
        self._odd.found(self._repository, entry)

    def doing(self, entry: Entry) -> str:
        """What is being done, for an error."""
        return f"download object {entry.path!r} at {self._ref!r} of repository {self._repository!r}"

    def _once(
        self, file: Download, part: str, progress: Progress | None, *, may_leave: bool = False
    ) -> Fetched:
        if not self.is_large(file):
            return Fetched(self._small(file, part), part)
        digest = self._beside.hashers.stream(may_leave=may_leave)
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
        return Fetched(got.md5, part, got.crc, left=got.left)

    def _small(self, file: Download, part: str) -> str:
        size = file.entry.size
        # The tiny ones, of which there are many, cannot fill the memory.
        counted = size if size > _TINY else 0
        if counted:
            self._budget.take(counted, wait=True)
        try:
            data = self._sized(
                file, size, lambda: self._stores.get(self._repository, self._ref, file.entry.path)
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
        """A larger object's bytes: one stream, or several ranges at once where that is long."""
        if file.entry.size > self._options.ranges_above_bytes:
            return self._in_ranges(file)
        return self.stream(file.entry)

    def _in_ranges(self, file: Download) -> Iterator[Buffer]:
        """The object's ranges in order, the next few under way."""
        size, step = file.entry.size, self._options.part_bytes
        spans = deque((at, min(at + step, size)) for at in range(0, size, step))
        under_way: deque[tuple[int, Future[Buffer]]] = deque()
        try:
            while spans or under_way:
                # Waiting for room while holding some could have two objects wait for each other.
                while spans and len(under_way) < _AHEAD:
                    length = spans[0][1] - spans[0][0]
                    if not self._budget.take(length, wait=not under_way):
                        break
                    under_way.append((length, self._beside.ranges.submit(self._range, file, spans.popleft())))
                length, piece = under_way[0]
                yield piece.result()
                under_way.popleft()
                self._budget.give_back(length)
        finally:
            for length, piece in under_way:
                piece.cancel()
                self._budget.give_back(length)

    def _range(self, file: Download, span: tuple[int, int]) -> Buffer:
        path = file.entry.path
        return self._sized(
            file, span[1] - span[0], lambda: self._stores.get_range(self._repository, self._ref, path, span)
        )

    def _sized(self, file: Download, size: int, get: Callable[[], Buffer]) -> Buffer:
        """What `get` gives, which must be of this size; a cut answer is asked for again."""

        def checked() -> Buffer:
            data = get()
            if len(data) != size:
                raise LakeUnavailable(f"{self.doing(file.entry)}: {len(data)} bytes arrived, not {size}")
            return data

        return self._stores.again(self.doing(file.entry), checked)


def _fits(entry: Entry, got: Fetched) -> bool:
    if fits_whole(got.md5, entry.checksum or ""):
        return True
    source = os.open(got.part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fits(got.md5, entry, source)
    finally:
        os.close(source)
