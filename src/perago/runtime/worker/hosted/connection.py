"""An authenticated connection between host and worker: every message is checked before it is unpickled (decision 0039).

    worker                                  host
    GREETING, nonce of the worker   ──▶
                                    ◀──     nonce of the host, proof of the host
    proof of the worker             ──▶
    messages                        ◀─▶     messages

A proof is an HMAC-SHA256 of both nonces under the key that only the worker's jobs have.  Each direction derives its own key
from the same nonces, so no message is accepted on another connection or in the other direction:

    message = length (8 bytes), HMAC(number, length), pickle, HMAC(number, length, pickle)

The number counts the messages in one direction from 0 and is not sent, so repeated, missing or reordered messages are
rejected.  Nothing is read or allocated for a length that is not authentic.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
import socket
import struct
import time
from multiprocessing.connection import wait
from typing import Any, NoReturn

GREETING = b"perago-host-connection-1"
HANDSHAKE_SECONDS = 30.0
KEEPALIVE_SECONDS = 30

_NONCE = 32
_TAG = 32
_LENGTH = struct.Struct(">Q")
_CHUNK = 1 << 20


class NotAuthentic(ConnectionError):
    """The peer does not have the key, or a message was changed in transit."""


class HostConnection:
    """One end of an authenticated connection.  At most one thread may send, and one may receive, at a time.

    `recv` raises `EOFError` if the peer has closed the connection, and `NotAuthentic` if a message is not from the peer.
    """

    def __init__(self, sock: socket.socket, sending: bytes, receiving: bytes, until: float) -> None:
        self._socket = sock
        self._sending = _Direction(sending)
        self._receiving = _Direction(receiving)
        self._until: float | None = until

    def __enter__(self) -> HostConnection:
        """Return the connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def fileno(self) -> int:
        """Return the file descriptor to wait on."""
        return self._socket.fileno()

    def poll(self, timeout: float = 0.0) -> bool:
        """Wait up to `timeout` seconds.  Returns whether a message has begun to arrive or the connection was closed."""
        return bool(wait([self._socket], timeout))

    def remove_time_limit(self) -> None:
        """Remove the handshake's time limit."""
        self._until = None
        self._socket.settimeout(None)

    def send(self, message: Any) -> None:
        """Send a message."""
        data = pickle.dumps(message)
        length, number = _LENGTH.pack(len(data)), self._sending.next()
        head = length + self._sending.tag(number, length)
        self._socket.sendall(b"".join((head, data, self._sending.tag(number, length, data))))

    def recv(self) -> Any:
        """Return the next message."""
        number, direction = self._receiving.next(), self._receiving
        head = _read(self._socket, _LENGTH.size + _TAG, self._until, or_end=True)
        length = head[: _LENGTH.size]
        if not hmac.compare_digest(head[_LENGTH.size :], direction.tag(number, length)):
            self._refuse()
        body = _read(self._socket, _LENGTH.unpack(length)[0] + _TAG, self._until)
        data, tag = body[:-_TAG], body[-_TAG:]
        if not hmac.compare_digest(tag, direction.tag(number, length, data)):
            self._refuse()
        return pickle.loads(data)

    def disconnect(self) -> None:
        """Shut the connection down for both sides. A thread that is reading from it wakes up and closes it."""
        disconnect(self._socket)

    def close(self) -> None:
        """Close this end of the connection."""
        self._socket.close()

    def _refuse(self) -> NoReturn:
        # Later messages cannot be trusted either.
        self.disconnect()
        raise NotAuthentic("a message between a host and its worker was changed in transit")


class _Direction:
    """The key for one direction of a connection, and the number of the next message in that direction."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next = 0

    def next(self) -> bytes:
        number, self._next = self._next, self._next + 1
        return _LENGTH.pack(number)

    def tag(self, *parts: bytes | memoryview) -> bytes:
        mac = hmac.new(self._key, digestmod="sha256")
        for part in parts:
            mac.update(part)
        return mac.digest()


def accept(sock: socket.socket, key: bytes, *, seconds: float = HANDSHAKE_SECONDS) -> HostConnection:
    """Return the worker's end of a connection, after the caller has proved that it has the key.

    Raises `NotAuthentic` if the caller does not have it.  The time limit also covers the first messages, until
    `remove_time_limit` is called.
    """
    prepare(sock)
    until = time.monotonic() + seconds
    sock.settimeout(seconds)
    ours = secrets.token_bytes(_NONCE)
    sock.sendall(GREETING + ours)
    answer = bytes(_read(sock, _NONCE + _TAG, until))
    nonces = ours + answer[:_NONCE]
    if not hmac.compare_digest(answer[_NONCE:], _derive(key, b"proof of the host", nonces)):
        raise NotAuthentic("a caller does not have the worker's key")
    sock.sendall(_derive(key, b"proof of the worker", nonces))
    to_host, to_worker = _derive(key, b"to the host", nonces), _derive(key, b"to the worker", nonces)
    return HostConnection(sock, to_host, to_worker, until)


def connect(sock: socket.socket, key: bytes, *, seconds: float = HANDSHAKE_SECONDS) -> HostConnection:
    """Return the host's end of a connection, after the worker has proved that it has the key.

    This is the counterpart of `accept`.
    """
    prepare(sock)
    until = time.monotonic() + seconds
    sock.settimeout(seconds)
    greeting = bytes(_read(sock, len(GREETING) + _NONCE, until))
    if not greeting.startswith(GREETING):
        raise NotAuthentic("the server that answers is not a worker of this version of Perago")
    ours = secrets.token_bytes(_NONCE)
    nonces = greeting[len(GREETING) :] + ours
    sock.sendall(ours + _derive(key, b"proof of the host", nonces))
    proof = bytes(_read(sock, _TAG, until))
    if not hmac.compare_digest(proof, _derive(key, b"proof of the worker", nonces)):
        raise NotAuthentic("the server that answers does not have the worker's key")
    to_host, to_worker = _derive(key, b"to the host", nonces), _derive(key, b"to the worker", nonces)
    return HostConnection(sock, to_worker, to_host, until)


def prepare(sock: socket.socket) -> None:
    """Configure a socket to detect that the peer's machine is gone, and to send small messages without delay."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), KEEPALIVE_SECONDS)


def disconnect(sock: socket.socket) -> None:
    """Shut down a connection that another thread may be using; that thread closes it."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _derive(key: bytes, purpose: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key, GREETING + purpose + nonces, "sha256")


def _read(sock: socket.socket, size: int, until: float | None, *, or_end: bool = False) -> memoryview:
    """Read exactly `size` bytes.

    With `or_end`, raises `EOFError` if the peer closed the connection before the first byte.
    """
    data = bytearray()
    while len(data) < size:
        if until is not None:
            if (left := until - time.monotonic()) <= 0:
                raise TimeoutError("the handshake took too long")
            sock.settimeout(left)
        part = sock.recv(min(size - len(data), _CHUNK))
        if not part:
            if or_end and not data:
                raise EOFError
            raise ConnectionResetError("the connection ended in the middle of a message")
        data += part
    return memoryview(data)
