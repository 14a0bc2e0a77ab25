"""Hashing beside a transfer, on threads of its own: one that brings bytes does not wait until they are hashed.

A stream's pieces are hashed in their order, by one thread at a time; the streams of all transfers share a thread for each
core, since hashing is nothing but work for a core (and lets go of Python's lock meanwhile).  Pieces that wait are
counted in the budget of bytes in flight; where that has no room, whoever brings the next piece hashes it, so
memory is bounded and nobody waits for room.
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

    def __init__(self, budget: Budget, pool: ThreadPoolExecutor | None = None) -> None:
        self._budget = budget
        self._pool = pool or ThreadPoolExecutor(_CORES, "perago-hash")

    def __enter__(self) -> Hashers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def stream(self) -> Digest:
        """A digest of a new stream."""
        return Digest(self._pool, self._budget)


class Digest:
    """MD5, CRC and size of one stream, whose pieces come from one thread."""

    def __init__(self, pool: ThreadPoolExecutor, budget: Budget) -> None:
        self._pool = pool
        self._budget = budget
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0
        self._size = 0
        self._waiting: deque[Buffer] = deque()
        self._changed = threading.Condition()
        self._hashing = False

    def update(self, piece: Buffer) -> None:
        """Take the next piece, which nobody changes any more; comes back before it is hashed, where there is room."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < _AHEAD)
            if self._budget.take(len(piece), wait=False):
                self._waiting.append(piece)
                if not self._hashing:
                    self._hashing = True
                    self._pool.submit(self._hash_waiting)
                return
            self._changed.wait_for(lambda: not self._hashing)
        self._hash(piece)

    def result(self) -> Digested:
        """What all pieces come to, once they are hashed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._hashing)
        return Digested(self._md5.hexdigest(), self._crc, self._size)

    def drop(self) -> None:
        """Forget what waits: the transfer failed."""
        with self._changed:
            while self._waiting:
                self._budget.give_back(len(self._waiting.popleft()))
            self._changed.wait_for(lambda: not self._hashing)

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
                self._budget.give_back(len(piece))

    def _hash(self, piece: Buffer) -> None:
        self._md5.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
