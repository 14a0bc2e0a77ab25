"""Connections on which an answer arrives whole within its time-out, or not at all.

A socket's time-out starts anew with every byte, so a server or proxy that sends its answer byte by byte would keep a
call for ever.  Here one thread for all connections closes those whose whole answer has not come in time.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse


@dataclass(slots=True, order=True)
class _Deadline:
    due: float
    number: int
    give_up: Callable[[], None] | None = field(compare=False)
    late: bool = field(default=False, compare=False)


class _Watch:
    """Calls what is overdue; a thread per call, which is what a timer is, would cost more than the call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._waiting: list[_Deadline] = []
        self._started = False
        self._wakes_at = 0.0

    @contextlib.contextmanager
    def within(self, seconds: float, give_up: Callable[[], None]) -> Iterator[_Deadline]:
        """Call `give_up` if the block takes longer; what it yields then says `late`."""
        deadline = _Deadline(time.monotonic() + seconds, next(self._numbers), give_up)
        with self._changed:
            if not self._started:
                threading.Thread(target=self._run, name="perago-deadlines", daemon=True).start()
                self._started = True
            heapq.heappush(self._waiting, deadline)
            # Asleep until an earlier deadline, or one that was met long ago: it will see this one then.
            if deadline.due < self._wakes_at:
                self._changed.notify()
        try:
            yield deadline
        finally:
            # Under the lock: once the block is left, its connection may be another call's.
            with self._changed:
                deadline.give_up = None
                while self._waiting and self._waiting[0].give_up is None:
                    heapq.heappop(self._waiting)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._wakes_at = self._waiting[0].due if self._waiting else math.inf
                wait = self._wakes_at - time.monotonic()
                if wait > 0:
                    self._changed.wait(None if math.isinf(wait) else wait)
                    continue
                deadline = heapq.heappop(self._waiting)
                if deadline.give_up is not None:
                    deadline.late = True
                    deadline.give_up()


_watch = _Watch()


def _watch_anew() -> None:
    """A forked child has its parent's deadlines and lock, but not its thread."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_watch_anew)


class _Bounded(HTTPConnection):
    """Bounds the time from the request's end to the answer's end by the read time-out."""

    on_reconnect: Callable[[], None]
    _was_connected = False

    def connect(self) -> None:
        # urllib3 replaces a connection that the server has closed without a word: only this tells.
        if self._was_connected:
            self.on_reconnect()
        self._was_connected = True
        super().connect()

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        def give_up() -> None:
            with contextlib.suppress(OSError, AttributeError):
                self.sock.shutdown(socket.SHUT_RDWR)

        deadline = None
        try:
            with _watch.within(float(self.timeout or 0), give_up) as deadline:
                return super().getresponse()
        finally:
            if deadline is not None and deadline.late:
                # What looks like an answer may be a part of one.
                raise TimeoutError(f"the answer did not come within {self.timeout} s")


class _BoundedTls(_Bounded, HTTPSConnection):
    """The same over TLS."""


def bound_answers(pools: urllib3.PoolManager, on_reconnect: Callable[[], None] = lambda: None) -> None:
    """Have all connections of these pools bounded; before the first call.

    `on_reconnect` is called when one of them is made anew, since the server has closed it.
    """

    class Plain(_Bounded):
        pass

    class Tls(_BoundedTls):
        pass

    class Pool(HTTPConnectionPool):
        ConnectionCls = Plain

    class TlsPool(HTTPSConnectionPool):
        ConnectionCls = Tls

    Plain.on_reconnect = Tls.on_reconnect = staticmethod(on_reconnect)
    pools.pool_classes_by_scheme = {"http": Pool, "https": TlsPool}
