"""Hashing beside a transfer, on threads of its own: one that brings bytes does not wait until they are hashed.

A stream's pieces are hashed in their order, by one thread at a time.  Hashing is nothing but work for a core (and lets go
of Python's lock meanwhile), so it is handed over while there are fewer streams than cores.  With as many streams, each
hashes its own pieces: no core is idle then, and handing over costs a tenth more CPU (measured, 8 streams on 2 cores).

Pieces that wait are counted in the budget of bytes in flight; where that has no room, whoever brings the next piece
hashes it, so memory is bounded and nobody waits for room.

An MD5 takes five times the CRC's time.  Where bytes come so fast that it would hold them up, a stream that may do so leaves
the rest of its MD5 for later: its bytes are in a file by then, and the hash goes on from where it was left.  On a slow line
the cores have the time, and all is hashed when the last byte is here.

An object whose file was handed out before its MD5 was known: the rest is hashed here, and a verdict is found.

The file is read through a descriptor that was opened before the file had its name, so the body may rename or delete it.
It may write into it, too, and then the MD5 is another one.  So is that of bytes that were damaged on their way, of an object
that came in parts of an unusual size, and of one whose checksum is no hash.  A second transfer tells them apart, by its MD5
and by the CRC that the first one's bytes had when they arrived:

    second transfer's MD5    its CRC           what it was
    fits the checksum        as the first's    the body wrote into its file: good
    fits the checksum        another           the first was damaged on its way: `LakeError`
    does not fit             as the first's    no hash of these bytes: good, as two equal transfers are
    does not fit             another           `LakeError`
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

from perago.lake.lakefs.transfer.concurrency import Budget
from perago.lake.lakefs.transfer.routing import Buffer

if TYPE_CHECKING:
    from hashlib import _Hash


_CORES = os.cpu_count() or 1
_AHEAD = 4
"""So many pieces of one stream may wait."""
_SETTLING_SECONDS = 0.1
"""How fast bytes come is not known sooner."""


@dataclass(frozen=True, slots=True)
class Left:
    """The MD5 of a stream's first `at` bytes, to be gone on with from there."""

    md5: _Hash
    at: int


@dataclass(frozen=True, slots=True)
class Digested:
    """What the bytes of a stream come to; the MD5 is `left` where it is not known yet."""

    md5: str
    crc: int
    size: int
    left: Left | None = None


class Hashers:
    """Threads that hash; closed with the download that they are for.

    Above `hashed_below` bytes a second for each core, streams that may leave their MD5 do so.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        cores: int = _CORES,
        pool: ThreadPoolExecutor | None = None,
        hashed_below: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        self.pool = pool or ThreadPoolExecutor(cores, "perago-hash")
        self._cores = cores
        self._most = hashed_below * cores
        self._clock = clock
        self._began = clock()
        self._came = 0
        self._lock = threading.Lock()
        self._streams = 0

    def __enter__(self) -> Hashers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()

    def stream(self, *, may_leave: bool = False) -> Digest:
        """A digest of a new stream, which ends with `result` or `drop`; its MD5 may be left unfinished if that is said."""
        with self._lock:
            self._streams += 1
        return Digest(self, may_leave)

    def ended(self) -> None:
        """One stream less."""
        with self._lock:
            self._streams -= 1

    def have_time(self) -> bool:
        """Whether there are cores that no stream keeps busy."""
        return self._streams < self._cores

    def came(self, size: int) -> None:
        """So many bytes more are here."""
        with self._lock:
            self._came += size

    def are_late(self) -> bool:
        """Whether bytes have come faster than they should be hashed on their way."""
        return self._came > self._most * max(self._clock() - self._began, _SETTLING_SECONDS)


class Digest:
    """MD5, CRC and size of one stream, whose pieces come from one thread."""

    def __init__(self, hashers: Hashers, may_leave: bool) -> None:
        self._hashers = hashers
        self._may_leave = may_leave
        self._left_at: int | None = None
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc = 0
        self._size = 0
        self._waiting: deque[Buffer] = deque()
        self._changed = threading.Condition()
        self._hashing = False

    def update(self, piece: Buffer) -> None:
        """Take the next piece, which nobody changes any more; comes back before it is hashed, where somebody has time."""
        self._hashers.came(len(piece))
        with self._changed:
            if self._left_at is None and self._hashers.have_time():
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
        if self._left_at is None:
            return Digested(self._md5.hexdigest(), self._crc, self._size)
        return Digested("", self._crc, self._size, Left(self._md5, self._left_at))

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
        if self._left_at is None and self._may_leave and self._hashers.are_late():
            self._left_at = self._size
        if self._left_at is None:
            self._md5.update(piece)
        self._crc = zlib.crc32(piece, self._crc)
        self._size += len(piece)
