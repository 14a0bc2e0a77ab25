"""Where hosts call: a socket of the worker's machine, behind a key that only its own jobs have.

The rule: nothing is unpickled before the caller has proved that it has the key, and a caller who says nothing holds up
nobody.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from perago.runtime.jobs import Door
from perago.runtime.worker.hosted.calls import Hello, Unwanted

log = logging.getLogger("perago.line")

HANDSHAKE_SECONDS = 30.0
KEEPALIVE_SECONDS = 30
_WAITING = 128

Take = Callable[[Connection, Hello], None]


class Switchboard:
    """Connects each caller with who waits for its job."""

    def __init__(self, door: Door) -> None:
        self.key = secrets.token_bytes(32)
        self._waiting: dict[str, Take] = {}
        family = socket.AF_INET6 if ":" in door.bind else socket.AF_INET
        self._socket = socket.create_server((door.bind, door.port), family=family, backlog=_WAITING)
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
            threading.Thread(target=self._answer, args=(called,), name="perago-line", daemon=True).start()

    def _answer(self, called: socket.socket) -> None:
        line = connection_of(called)
        try:
            _wait_at_most(line, HANDSHAKE_SECONDS)
            deliver_challenge(line, self.key)
            answer_challenge(line, self.key)
            hello: Hello = line.recv()
            _wait_at_most(line, 0)
            take = self._waiting.get(hello.job)
            if take is None:
                line.send(Unwanted())
            else:
                take(line, hello)
        except (OSError, EOFError, AuthenticationError) as error:
            log.debug("a call has ended: %s", error)
        except Exception:
            # Another version of Perago there, say.
            log.exception("what a host says cannot be read")
        finally:
            line.close()


def connection_of(one: socket.socket) -> Connection:
    """A connected socket as a line that notices when the other machine is gone."""
    one.setblocking(True)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        if hasattr(socket, name):
            one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE_SECONDS)
    return Connection(one.detach())


def call(address: tuple[str, int], key: bytes, hello: Hello) -> Connection:
    """In a host: a line to the worker, after both have proved that they have the key."""
    line = connection_of(socket.create_connection(address, timeout=HANDSHAKE_SECONDS))
    try:
        _wait_at_most(line, HANDSHAKE_SECONDS)
        answer_challenge(line, key)
        deliver_challenge(line, key)
        line.send(hello)
    except BaseException:
        line.close()
        raise
    return line


def hang_up(line: Connection) -> None:
    """End a line that another thread may be reading from; that thread closes it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(line.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _wait_at_most(line: Connection, seconds: float) -> None:
    """How long a read may wait; 0 for as long as it takes."""
    with socket.socket(fileno=os.dup(line.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(seconds), 0))
