"""Both ends of the transport between hosts and worker.

`WorkerConnection` is a host's end: it buffers important messages and resends them after a reconnect.
`HostListener` is the worker's end: a socket protected by a key that only the worker's jobs have.  Nothing is unpickled
before it has been authenticated (`connection.py`).  Callers without the key cannot block anyone: at most `MOST_STRANGERS` of
them are connected at a time, each for no longer than a handshake may take.
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

log = logging.getLogger("perago.line")

PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 0.5
MOST_STRANGERS = 128
"""Maximum number of unauthenticated connections at a time, far below a process's limit on file descriptors."""

Call = Callable[[Connect], HostConnection]
Take = Callable[[HostConnection, Connect], None]


class ConnectionLost(Exception):
    """The worker cannot be reached, or is no longer waiting for this job."""


class WorkerConnection:
    """A host's connection to the worker. Reconnects if the connection breaks."""

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
        """All messages sent so far that must not be lost."""
        return tuple(self._kept)

    def open(self) -> None:
        """Connect and resend unacknowledged messages.

        Raises `ConnectionLost` if that keeps failing for `PATIENCE_SECONDS`.
        """
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
            self._sleep(_RETRY_SECONDS)

    def send(self, answer: Answer) -> None:
        """Send a message, and buffer it for resending if it must not be lost."""
        if isinstance(answer, KEPT):
            self._kept.append(answer)
        self._send(answer)

    def send_output(self, data: bytes) -> None:
        """Send output printed by the executor."""
        self._send(Output(data))

    def received_kill(self) -> bool:
        """Receive a message and return whether it is `Kill`. Reconnects if the connection is broken."""
        if self.connection is None:
            return False
        try:
            return isinstance(self.connection.recv(), Kill)
        except (OSError, EOFError):
            self.open()
            return False

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
            self.connection = None

    def _connect(self) -> None:
        self.connection = self._call(self._hello)
        answer = self.connection.recv()
        if isinstance(answer, Rejected):
            raise ConnectionLost("its worker no longer waits for it")
        assert isinstance(answer, Accepted)  # noqa: S101 - the only other answer
        self.connection.remove_time_limit()
        for kept in self._kept[answer.received :]:
            self.connection.send(kept)

    def _send(self, message: Answer | Output) -> None:
        if self.connection is None:
            return
        try:
            self.connection.send(message)
        except OSError:
            self.open()


class HostListener:
    """Accepts connections from hosts, and passes each to the worker's side of its job."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.key = secrets.token_bytes(32)
        self._waiting: dict[str, Take] = {}
        self._strangers: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        family = socket.AF_INET6 if ":" in endpoint.bind else socket.AF_INET
        self._socket = socket.create_server(
            (endpoint.bind, endpoint.port), family=family, backlog=MOST_STRANGERS
        )
        self.address: tuple[str, int] = (endpoint.host, self._socket.getsockname()[1])
        threading.Thread(target=self._listen, name="perago-host-listener", daemon=True).start()

    def expect(self, job: str, take: Take) -> None:
        """Pass connections for this job to `take`, each on a separate thread."""
        self._waiting[job] = take

    def forget(self, job: str) -> None:
        """Reject connections for this job from now on."""
        self._waiting.pop(job, None)

    def close(self) -> None:
        """Stop listening."""
        # Closing alone does not wake a thread in `accept`.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        while True:
            try:
                caller, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                # Out of file descriptors, for example; the caller will retry.
                threading.Event().wait(0.1)
                continue
            self._admit(caller)
            threading.Thread(
                target=self._serve, args=(caller,), name="perago-host-connection", daemon=True
            ).start()

    def _admit(self, caller: socket.socket) -> None:
        """Register a caller as unauthenticated. If there are too many such callers, disconnect the oldest.

        A host authenticates within a few round trips, so it is hardly ever the oldest. If it is, it reconnects.
        """
        with self._lock:
            self._strangers[caller] = None
            if len(self._strangers) > MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                disconnect(oldest)

    def _remove_stranger(self, caller: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(caller, None)

    def _serve(self, caller: socket.socket) -> None:
        authenticated = False
        try:
            connection = accept(caller, self.key)
            authenticated = True
            self._remove_stranger(caller)
            hello: Connect = connection.recv()
            connection.remove_time_limit()
            take = self._waiting.get(hello.job)
            if take is None:
                connection.send(Rejected())
            else:
                take(connection, hello)
        except (OSError, EOFError) as error:
            # Anyone can connect without the key: that alone must not fill the log.
            changed = authenticated and isinstance(error, NotAuthentic)
            log.log(logging.WARNING if changed else logging.DEBUG, "connection of a host ended: %s", error)
        except Exception:
            # Another version of Perago on the host, for example.
            log.exception("cannot read a host's message, connection closed")
        finally:
            self._remove_stranger(caller)
            caller.close()


def call(address: tuple[str, int], key: bytes, hello: Connect) -> HostConnection:
    """Connect a host to the worker. Both sides prove that they have the key.

    The handshake's time limit also covers the worker's messages, until `remove_time_limit` is called.
    """
    caller = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    try:
        connection = connect(caller, key)
        connection.send(hello)
    except BaseException:
        caller.close()
        raise
    return connection
