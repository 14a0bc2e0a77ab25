"""Somebody on the path between two ends of a TCP connection, who sees every byte and may pass on others."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Tamper = Callable[[bytes], bytes]


def unchanged(data: bytes) -> bytes:
    """Pass bytes on as they are."""
    return data


@dataclass(eq=False)
class Relay:
    """Where to connect instead, what is done to the bytes of each direction, and the connections so far."""

    upstream: tuple[str, int]
    address: tuple[str, int]
    to_server: Tamper = unchanged
    to_client: Tamper = unchanged
    clients: list[socket.socket] = field(default_factory=list)
    servers: list[socket.socket] = field(default_factory=list)

    def pass_on(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        """Pass bytes on until one of the two ends."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall((self.to_server if up else self.to_client)(data))
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(upstream: tuple[str, int]) -> Iterator[Relay]:
    """A relay on a port of its own, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Relay(upstream, listener.getsockname()[:2])
        threading.Thread(target=_accept, args=(listener, made), daemon=True).start()
        yield made
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    for end in (*made.clients, *made.servers):
        end.close()


def _accept(listener: socket.socket, made: Relay) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(made.upstream)
            made.clients.append(client)
            made.servers.append(server)
            for source, sink, up in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=made.pass_on, args=(source, sink), kwargs={"up": up}, daemon=True
                ).start()
