"""Hashes transferred bytes on separate threads, so that a transfer does not wait for its hash.

The pieces of a stream are hashed in order, by one thread at a time.  Hashing is CPU-bound and releases the GIL, so
pieces are handed over to a hashing thread while there are fewer streams than cores.  With as many streams as cores,
each stream hashes its own pieces: no core is idle then, and handing pieces over would cost a tenth more CPU time
(measured with 8 streams on 2 cores).

Waiting pieces count towards the memory budget.  If the budget has no room, the transferring thread hashes the piece
itself, so memory is bounded and no thread waits for room.

An MD5 takes five times as long as a CRC.  If bytes arrive faster than they can be hashed, a stream that is allowed to
defer its MD5 leaves the rest of it for later: its bytes are in a file by then, and the hash is continued from that file
while the body runs.  On a slow connection the cores keep up, and the MD5 is complete when the last byte arrives.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.lake.lakefs.transfer.concurrency import MemoryBudget
from perago.lake.lakefs.transfer.routing import Buffer

if TYPE_CHECKING:
    from hashlib import _Hash


_CORES = os.cpu_count() or 1
_AHEAD = 4
"""The maximum number of pieces of one stream that may wait to be hashed."""
_SETTLING_SECONDS = 0.1
"""The minimum time, in seconds, over which the download rate is computed."""


@dataclass(frozen=True, slots=True)
class PartialMd5:
    """The MD5 of a stream's first `at` bytes, to be continued from there."""

    md5: _Hash
    at: int


@dataclass(frozen=True, slots=True)
class Digests:
    """The MD5, CRC and size of a whole stream. If the MD5 was deferred, `md5` is empty and `partial` is set."""

    md5: str
    crc: int
    size: int
    partial: PartialMd5 | None = None


class Hashers:
    """The hashing threads of one download.

    If bytes arrive at more than `hashed_below` per second per core, streams that may defer their MD5 do so.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        *,
        cores: int = _CORES,
        pool: ThreadPoolExecutor | None = None,
        hashed_below: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        self.pool = pool or ThreadPoolExecutor(cores, "perago-hash")
        self._cores = cores
        self._highest_rate = hashed_below * cores
        self._clock = clock
        self._began = clock()
        self._received = 0
        self._lock = threading.Lock()
        self._streams = 0

    def __enter__(self) -> Hashers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def stream(self, *, may_defer: bool = False) -> StreamDigest:
        """Return a hasher for a new stream. The caller must finish it with `result` or `drop`."""
        with self._lock:
            self._streams += 1
        return StreamDigest(self, may_defer)

    def end_stream(self) -> None:
        """Record that a stream has ended."""
        with self._lock:
            self._streams -= 1

    def has_idle_core(self) -> bool:
        """Return whether there are fewer streams than cores."""
        return self._streams < self._cores

    def add_bytes(self, size: int) -> None:
        """Count `size` more received bytes."""
        with self._lock:
            self._received += size

    def is_overloaded(self) -> bool:
        """Return whether bytes are arriving faster than they can be hashed."""
        return self._received > self._highest_rate * max(self._clock() - self._began, _SETTLING_SECONDS)


class StreamDigest:
    """Computes the MD5, CRC and size of one stream. All pieces must be added by the same thread."""

    def __init__(self, hashers: Hashers, may_defer: bool) -> None:
        self._hashers = hashers
        self._may_defer = may_defer
        self._deferred_at: int | None = None
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0
        self._size = 0
        self._waiting: deque[Buffer] = deque()
        self._changed = threading.Condition()
        self._hashing = False

    def update(self, piece: Buffer) -> None:
        """Add the next piece, which must not change afterwards.

        It is hashed in the background if a core is idle and the memory budget allows it.
        """
        self._hashers.add_bytes(len(piece))
        with self._changed:
            if self._deferred_at is None and self._hashers.has_idle_core():
                self._changed.wait_for(lambda: len(self._waiting) < _AHEAD)
                if self._hashers.budget.take(len(piece), wait=False):
                    self._waiting.append(piece)
                    if not self._hashing:
                        self._hashing = True
                        self._hashers.pool.submit(self._hash_waiting)
                    return
            # Pieces must be hashed in order.
            self._changed.wait_for(lambda: not self._hashing)
        self._hash(piece)

    def result(self) -> Digests:
        """Wait until all pieces are hashed, and return their digests."""
        self._end()
        if self._deferred_at is None:
            return Digests(self._md5.hexdigest(), self._crc, self._size)
        return Digests("", self._crc, self._size, PartialMd5(self._md5, self._deferred_at))

    def drop(self) -> None:
        """Discard the waiting pieces after a failed transfer, and end the stream."""
        with self._changed:
            while self._waiting:
                self._hashers.budget.give_back(len(self._waiting.popleft()))
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._hashing)
        self._hashers.end_stream()

    def _hash_waiting(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._hashing = False
                    self._changed.notify_all()
                    return
                piece = self._waiting.popleft()
                self._changed.notify_all()
            try:
                self._hash(piece)
            finally:
                self._hashers.budget.give_back(len(piece))

    def _hash(self, piece: Buffer) -> None:
        if self._deferred_at is None and self._may_defer and self._hashers.is_overloaded():
            self._deferred_at = self._size
        if self._deferred_at is None:
            self._md5.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
