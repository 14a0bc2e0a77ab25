"""Connections on which an answer arrives whole within its time-out, or not at all.

A socket's time-out starts anew with every byte, so a server or proxy that sends its answer byte by byte would keep a
call for ever.  Here a timer closes the connection when the whole answer has not come in time.
"""

from __future__ import annotations

import contextlib
import socket
import threading

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse


class _Bounded(HTTPConnection):
    """Bounds the time from the request's end to the answer's end by the read time-out."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        late = threading.Event()

        def give_up() -> None:
            late.set()
            with contextlib.suppress(OSError, AttributeError):
                self.sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(float(self.timeout or 0), give_up)
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()
        finally:
            timer.cancel()
            if late.is_set():
                # What looks like an answer may be a part of one.
                raise TimeoutError(f"the answer did not come within {self.timeout} s")


class _BoundedTls(_Bounded, HTTPSConnection):
    """The same over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Bounded


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _BoundedTls


def bound_answers(pools: urllib3.PoolManager) -> None:
    """Have all connections of these pools bounded; before the first call."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
