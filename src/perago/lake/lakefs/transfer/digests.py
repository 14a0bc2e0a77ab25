"""Hashing beside a transfer, on threads of its own: one that brings bytes does not wait until they are hashed.

A stream's pieces are hashed in their order, by one thread at a time.  Hashing is nothing but work for a core (and lets go
of Python's lock meanwhile), so it is handed over while there are fewer streams than cores.  With as many streams, each
hashes its own pieces: no core is idle then, and handing over costs a tenth more CPU (measured, 8 streams on 2 cores).

Pieces that wait are counted in the budget of bytes in flight; where that has no room, whoever brings the next piece
hashes it, so memory is bounded and nobody waits for room.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from perago.lake.lakefs.transfer.budget import Budget
from perago.lake.lakefs.transfer.ways import Buffer

_CORES = os.cpu_count() or 1
_AHEAD = 4
"""So many pieces of one stream may wait."""


@dataclass(frozen=True, slots=True)
class Digested:
    """What the bytes of a stream come to."""

    md5: str
    crc: int
    size: int


class Hashers:
    """Threads that hash; closed with the download that they are for."""

    def __init__(
        self, budget: Budget, *, cores: int = _CORES, pool: ThreadPoolExecutor | None = None
    ) -> None:
        self.budget = budget
        self.pool = pool or ThreadPoolExecutor(cores, "perago-hash")
        self._cores = cores
        self._lock = threading.Lock()
        self._streams = 0

    def __enter__(self) -> Hashers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def stream(self) -> Digest:
        """A digest of a new stream, which ends with `result` or `drop`."""
        with self._lock:
            self._streams += 1
        return Digest(self)

    def ended(self) -> None:
        """One stream less."""
        with self._lock:
            self._streams -= 1

    def have_time(self) -> bool:
        """Whether there are cores that no stream keeps busy."""
        return self._streams < self._cores


class Digest:
    """MD5, CRC and size of one stream, whose pieces come from one thread."""

    def __init__(self, hashers: Hashers) -> None:
        self._hashers = hashers
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0
        self._size = 0
        self._waiting: deque[Buffer] = deque()
        self._changed = threading.Condition()
        self._hashing = False

    def update(self, piece: Buffer) -> None:
        """Take the next piece, which nobody changes any more; comes back before it is hashed, where somebody has time."""
        with self._changed:
            if self._hashers.have_time():
                self._changed.wait_for(lambda: len(self._waiting) < _AHEAD)
                if self._hashers.budget.take(len(piece), wait=False):
                    self._waiting.append(piece)
                    if not self._hashing:
                        self._hashing = True
                        self._hashers.pool.submit(self._hash_waiting)
                    return
            # In their order.
            self._changed.wait_for(lambda: not self._hashing)
        self._hash(piece)

    def result(self) -> Digested:
        """What all pieces come to, once they are hashed."""
        self._end()
        return Digested(self._md5.hexdigest(), self._crc, self._size)

    def drop(self) -> None:
        """Forget what waits: the transfer failed."""
        with self._changed:
            while self._waiting:
                self._hashers.budget.give_back(len(self._waiting.popleft()))
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._hashing)
        self._hashers.ended()

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
        self._md5.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
