"""A host's end of the line.  What must not be lost is kept, and said again where a line was cut and there is a new one.

Where hosts call: a socket of the worker's machine, behind a key that only its own jobs have.

The rule: nothing is unpickled before it is authentic (`connection.py`), and callers without the key hold up nobody: at most
`MOST_STRANGERS` of them are connected at a time, each for no longer than a handshake may take.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable

from perago.runtime.worker.executor_protocol import Answer
from perago.runtime.worker.hosted.connection import (
    HANDSHAKE_SECONDS,
    HostConnection,
    NotAuthentic,
    accept,
    connect,
    disconnect,
)
from perago.runtime.worker.hosted.engine import Endpoint
from perago.runtime.worker.hosted.protocol import KEPT, Accepted, Connect, Kill, Output, Rejected

PATIENCE_SECONDS = 20.0
_PAUSE = 0.5

Call = Callable[[Connect], HostConnection]


class ConnectionLost(Exception):
    """Nobody can be reached at the other end, or nobody there wants this job."""


class WorkerConnection:
    """Calls the worker, and calls again when the line is cut."""

    def __init__(
        self,
        call: Call,
        hello: Connect,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._call = call
        self._hello = hello
        self._clock = clock
        self._sleep = sleep
        self._kept: list[Answer] = []
        self.connection: HostConnection | None = None

    @property
    def kept(self) -> tuple[Answer, ...]:
        """All that must not be lost."""
        return tuple(self._kept)

    def open(self) -> None:
        """Call until somebody answers, and say what was not heard before; `ConnectionLost` where that does not help."""
        until = self._clock() + PATIENCE_SECONDS
        while True:
            self.close()
            try:
                self._connect()
                return
            except (OSError, EOFError) as error:
                self.close()
                if self._clock() >= until:
                    raise ConnectionLost(str(error) or type(error).__name__) from error
            self._sleep(_PAUSE)

    def say(self, answer: Answer) -> None:
        """Tell the worker."""
        if isinstance(answer, KEPT):
            self._kept.append(answer)
        self._send(answer)

    def print(self, data: bytes) -> None:
        """Tell the worker what was printed."""
        self._send(Output(data))

    def is_to_die(self) -> bool:
        """Whether the worker, which has said something, wants the executor ended; a line that was cut is there again."""
        if self.connection is None:
            return False
        try:
            return isinstance(self.connection.recv(), Kill)
        except (OSError, EOFError):
            self.open()
            return False

    def close(self) -> None:
        """Hang up."""
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
            self.connection = None

    def _connect(self) -> None:
        self.connection = self._call(self._hello)
        answer = self.connection.recv()
        if isinstance(answer, Rejected):
            raise ConnectionLost("its worker does not wait for it any more")
        assert isinstance(answer, Accepted)  # noqa: S101 - there is nothing else
        self.connection.wait_for_ever()
        for said in self._kept[answer.heard :]:
            self.connection.send(said)

    def _send(self, message: Answer | Output) -> None:
        if self.connection is None:
            return
        try:
            self.connection.send(message)
        except OSError:
            self.open()


log = logging.getLogger("perago.line")

MOST_STRANGERS = 128
"""Connections that have not proved yet that they have the key: far fewer than the descriptors that a process may have."""

Take = Callable[[HostConnection, Connect], None]


class HostListener:
    """Connects each caller with who waits for its job."""

    def __init__(self, door: Endpoint) -> None:
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
                disconnect(oldest)

    def _forget_stranger(self, called: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(called, None)

    def _answer(self, called: socket.socket) -> None:
        known = False
        try:
            line = accept(called, self.key)
            known = True
            self._forget_stranger(called)
            hello: Connect = line.recv()
            line.wait_for_ever()
            take = self._waiting.get(hello.job)
            if take is None:
                line.send(Rejected())
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


def call(address: tuple[str, int], key: bytes, hello: Connect) -> HostConnection:
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
