"""Proxies that fail on purpose: HTTP in front of a real server, and a TCP relay that may change bytes.

The HTTP proxy applies to each request the first fault that matches its method and path and is not used up.  It records all
requests, so that a test can count them.
"""

from __future__ import annotations

import http.client
import re
import socket
import socketserver
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Literal

Way = Literal[
    "cut before",
    "cut after",
    "cut body",
    "close",
    "other bytes",
    "other bytes sent",
    "answer",
    "stall",
    "drip",
    "hold",
]
_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(slots=True)
class Fault:
    """A fault for requests whose `METHOD path` matches `where`.

    cut before    the connection closes, and the server never sees the request
    cut after     the server handles the request, the answer is lost
    cut body      the first `keep` bytes of the answer's body come, then the connection closes
    close         the answer comes, then the connection closes
    other bytes   the answer's body has the right length and a wrong first byte
    other bytes sent    the same for the request's body, on its way to the server
    hold          the request is passed on after `seconds`
    answer        `status` comes with `text`, and the server never sees the request
    stall         nothing comes, and the server never sees the request
    drip          the answer comes a byte at a time, for ever
    """

    way: Way
    where: str
    times: int = 1
    status: int = 503
    keep: int = 0
    seconds: float = 0
    text: str = '{"message": "said by the fault proxy"}'

    def takes(self, line: str) -> bool:
        """Return whether this fault applies to this request, and count it if so."""
        if self.times <= 0 or not re.search(self.where, line):
            return False
        self.times -= 1
        return True


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that the server itself answered, and the size of the answer's body."""

    line: str
    size: int


@dataclass(slots=True)
class FaultProxy:
    """The proxy's address, its faults, and the requests it has seen."""

    url: str
    upstream: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)
    date_shift: float = 0.0
    """Seconds added to the `Date` of every answer, as from a server with a wrong clock."""

    def count(self, pattern: str) -> int:
        """Return the number of requests whose `METHOD path` matches."""
        return sum(1 for line in self.seen if re.search(pattern, line))

    def fault_for(self, line: str) -> Fault | None:
        """Record a request, and choose its fault."""
        with self.lock:
            self.seen.append(line)
            return next((fault for fault in self.faults if fault.takes(line)), None)


@contextmanager
def fault_proxy(upstream: str, *faults: Fault) -> Iterator[FaultProxy]:
    """Run a proxy on a free port until the block ends."""
    server = _Server(("127.0.0.1", 0), _Handler)
    proxy = FaultProxy(f"http://127.0.0.1:{server.server_address[1]}", upstream, list(faults))
    server.proxy = proxy
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64
    proxy: FaultProxy


class _Handler(socketserver.StreamRequestHandler):
    """One client connection: requests one after the other until either side closes it."""

    server: _Server

    def handle(self) -> None:
        with suppress(OSError, http.client.HTTPException):
            while self._one():
                pass

    def _one(self) -> bool:
        first = self.rfile.readline().decode("latin-1").strip()
        if not first:
            return False
        method, path, _ = first.split(" ", 2)
        headers = http.client.parse_headers(self.rfile)
        fault = self.server.proxy.fault_for(f"{method} {path}")
        body = self.rfile.read(int(headers.get("Content-Length", 0)))
        if fault is not None and fault.way in ("cut before", "stall", "answer"):
            return self._without_server(fault)
        if fault is not None and fault.way == "hold":
            self.server.proxy.over.wait(fault.seconds)
        if fault is not None and fault.way == "other bytes sent":
            body = bytes([body[0] ^ 1]) + body[1:]
        answer, data = self._forward(method, path, headers, body)
        self.server.proxy.answered.append(Answered(f"{method} {path}", len(data)))
        if fault is not None and fault.way == "cut after":
            return False
        length = answer.getheader("Content-Length") if method == "HEAD" else str(len(data))
        text = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        text += [f"{name}: {value}" for name, value in self._headers(answer)]
        if length is not None:
            text.append(f"Content-Length: {length}")
        head = ("\r\n".join(text) + "\r\n\r\n").encode("latin-1")
        return self._send(head, data, fault)

    def _headers(self, answer: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
        for name, value in answer.getheaders():
            if name.lower() == "date" and self.server.proxy.date_shift:
                moved = parsedate_to_datetime(value).timestamp() + self.server.proxy.date_shift
                yield name, formatdate(moved, usegmt=True)
            elif name.lower() not in _HOP:
                yield name, value

    def _send(self, head: bytes, data: bytes, fault: Fault | None) -> bool:
        if fault is None or fault.way in ("hold", "other bytes sent"):
            self.wfile.write(head + data)
            return True
        if fault.way == "close":
            self.wfile.write(head + data)
            return False
        if fault.way == "other bytes":
            self.wfile.write(head + bytes([data[0] ^ 1]) + data[1:])
            return True
        if fault.way == "cut body":
            self.wfile.write(head + data[: fault.keep])
            return False
        for byte in head:
            self.wfile.write(bytes([byte]))
            if self.server.proxy.over.wait(0.05):
                break
        return False

    def _without_server(self, fault: Fault) -> bool:
        if fault.way == "stall":
            self.server.proxy.over.wait()
            return False
        if fault.way == "cut before":
            return False
        body = fault.text.encode()
        head = f"HTTP/1.1 {fault.status} Fault\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.wfile.write(head.encode() + b"\r\n" + body)
        return True

    def _forward(
        self, method: str, path: str, headers: http.client.HTTPMessage, body: bytes
    ) -> tuple[http.client.HTTPResponse, bytes]:
        host = urllib.parse.urlsplit(self.server.proxy.upstream)
        upstream = http.client.HTTPConnection(host.hostname or "", host.port, timeout=60)
        try:
            upstream.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() != "connection":
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            return answer, answer.read()
        finally:
            upstream.close()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
            self.connection.shutdown(socket.SHUT_RDWR)


# --- TCP ---------------------------------------------------------------------------------------------------------------


Tamper = Callable[[bytes], bytes]


def unchanged(data: bytes) -> bytes:
    """Pass bytes on as they are."""
    return data


@dataclass(eq=False)
class Relay:
    """A man in the middle of TCP connections: sees every byte and may change those of each direction."""

    upstream: tuple[str, int]
    address: tuple[str, int]
    to_server: Tamper = unchanged
    to_client: Tamper = unchanged
    clients: list[socket.socket] = field(default_factory=list)
    servers: list[socket.socket] = field(default_factory=list)

    def pass_on(self, source: socket.socket, sink: socket.socket, *, up: bool) -> None:
        """Pass bytes on until either end closes."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall((self.to_server if up else self.to_client)(data))
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(upstream: tuple[str, int]) -> Iterator[Relay]:
    """Run a relay on a free port until the block ends."""
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
