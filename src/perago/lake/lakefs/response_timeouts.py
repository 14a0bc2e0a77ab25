"""HTTP connections with a timeout for the whole response: it arrives completely in time, or an error is raised.

A socket's timeout restarts with every byte, so a server or proxy that sends its response byte by byte could block a
call forever.  Here, a single thread shuts down every connection whose response has not arrived completely in time.
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
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.response import HTTPResponse


@dataclass(slots=True, order=True)
class _Deadline:
    due: float
    number: int
    give_up: Callable[[], None] | None = field(compare=False)
    late: bool = field(default=False, compare=False)


class _Watch:
    """Runs a callback for each missed deadline.

    It has a single thread, since one `threading.Timer` per call would cost more than the call.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._waiting: list[_Deadline] = []
        self._started = False
        self._wakes_at = 0.0

    @contextlib.contextmanager
    def within(self, seconds: float, give_up: Callable[[], None]) -> Iterator[_Deadline]:
        """Run the block with a deadline.

        If the block takes longer than `seconds`, sets `late` on the yielded deadline and calls `give_up`.
        """
        deadline = _Deadline(time.monotonic() + seconds, next(self._numbers), give_up)
        with self._changed:
            if not self._started:
                threading.Thread(target=self._run, name="perago-deadlines", daemon=True).start()
                self._started = True
            heapq.heappush(self._waiting, deadline)
            # If the thread will wake before this deadline anyway (perhaps for one that was met long ago), it will see
            # this one then.
            if deadline.due < self._wakes_at:
                self._changed.notify()
        try:
            yield deadline
        finally:
            # Hold the lock, because another call may use the connection after the block.
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


def _renew_watch() -> None:
    """Replace the watch after a fork: the child process inherits the deadlines and the lock, but not the thread."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_renew_watch)


class _Bounded(HTTPConnection):
    """A connection whose read timeout covers the whole time from the end of the request to the end of the response."""

    _was_connected = False

    def __init__(self, on_reconnect: Callable[[], None], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._on_reconnect = on_reconnect

    def connect(self) -> None:
        # urllib3 silently replaces a connection that the server closed; this call is the only sign of it.
        if self._was_connected:
            self._on_reconnect()
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
                # A seemingly complete response may be truncated.
                raise TimeoutError(f"the answer did not come within {self.timeout} s")


class _BoundedTls(_Bounded, HTTPSConnection):
    """A `_Bounded` connection over TLS."""


class BoundedPools(urllib3.PoolManager):
    """Pools of bounded connections.  `on_reconnect` is called when a connection that the server closed is reopened."""

    def __init__(self, on_reconnect: Callable[[], None] = lambda: None, **options: Any) -> None:
        super().__init__(**options)
        self._on_reconnect = on_reconnect

    def _new_pool(
        self, scheme: str, host: str, port: int, request_context: dict[str, Any] | None = None
    ) -> HTTPConnectionPool:
        # urllib3's documented hook for using another connection class.
        made = super()._new_pool(scheme, host, port, request_context)
        connection = _BoundedTls if scheme == "https" else _Bounded
        made.ConnectionCls = partial(connection, self._on_reconnect)  # type: ignore[assignment]
        return made
