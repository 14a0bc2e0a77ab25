"""Where hosts call: a socket of the worker's machine, behind a key that only its own jobs have.

The rule: nothing is unpickled before it is authentic (`connection.py`), and callers without the key hold up nobody: at most
`MOST_STRANGERS` of them are connected at a time, each for no longer than a handshake may take.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable

from perago.runtime.jobs import Door
from perago.runtime.worker.hosted.calls import Hello, Unwanted
from perago.runtime.worker.hosted.connection import (
    HANDSHAKE_SECONDS,
    HostConnection,
    NotAuthentic,
    accept,
    connect,
    hang_up,
)

log = logging.getLogger("perago.line")

MOST_STRANGERS = 128
"""Connections that have not proved yet that they have the key: far fewer than the descriptors that a process may have."""

Take = Callable[[HostConnection, Hello], None]


class Switchboard:
    """Connects each caller with who waits for its job."""

    def __init__(self, door: Door) -> None:
        self.key = secrets.token_bytes(32)
        self._waiting: dict[str, Take] = {}
        self._strangers: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        family = socket.AF_INET6 if ":" in door.bind else socket.AF_INET
        self._socket = socket.create_server((door.bind, door.port), family=family, backlog=MOST_STRANGERS)
        self.address: tuple[str, int] = (door.host, self._socket.getsockname()[1])
        threading.Thread(target=self._listen, name="perago-switchboard", daemon=True).start()

    def expect(self, job: str, take: Take) -> None:
        """Give callers of a job to `take`, each on a thread of its own."""
        self._waiting[job] = take

    def forget(self, job: str) -> None:
        """Turn callers of a job away from now on."""
        self._waiting.pop(job, None)

    def close(self) -> None:
        """Take no more calls."""
        # A thread that waits in `accept` is not woken by closing alone.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                called, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                # No descriptors, say: who called tries again.
                threading.Event().wait(0.1)
                continue
            self._admit(called)
            threading.Thread(target=self._answer, args=(called,), name="perago-line", daemon=True).start()

    def _admit(self, called: socket.socket) -> None:
        """Count a caller as a stranger; if there are too many, the one that has waited longest goes.

        A host proves itself within a few round trips, so it is hardly ever the oldest, and calls again if it was.
        """
        with self._lock:
            self._strangers[called] = None
            if len(self._strangers) > MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                hang_up(oldest)

    def _forget_stranger(self, called: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(called, None)

    def _answer(self, called: socket.socket) -> None:
        known = False
        try:
            line = accept(called, self.key)
            known = True
            self._forget_stranger(called)
            hello: Hello = line.recv()
            line.wait_for_ever()
            take = self._waiting.get(hello.job)
            if take is None:
                line.send(Unwanted())
            else:
                take(line, hello)
        except (OSError, EOFError) as error:
            # Anybody can call without the key, so that alone does not fill the log.
            changed = known and isinstance(error, NotAuthentic)
            log.log(logging.WARNING if changed else logging.DEBUG, "a call has ended: %s", error)
        except Exception:
            # Another version of Perago there, say.
            log.exception("what a host says cannot be read")
        finally:
            self._forget_stranger(called)
            called.close()


def call(address: tuple[str, int], key: bytes, hello: Hello) -> HostConnection:
    """In a host: a connection to the worker, after both have proved that they have the key.

    Its answers have to come within the handshake's time limit, until `wait_for_ever`.
    """
    called = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    try:
        line = connect(called, key)
        line.send(hello)
    except BaseException:
        called.close()
        raise
    return line
