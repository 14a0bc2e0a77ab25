"""An HTTP server for faults that a healthy Conductor does not show: each test scripts the answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: str
    token: str | None


Answer = tuple[int, object]
Script = Callable[[Request], Answer]
NGINX = (
    "<html>\r\n<head><title>{0}</title></head>\r\n<body><center><h1>{0}</h1></center><hr>nginx</body></html>"
)
"""The page of a proxy that answers in the server's place, for a status line."""


@dataclass(slots=True)
class ScriptedServer:
    """The server's address, and the requests and connections it has seen."""

    url: str
    requests: list[Request] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)

    def seen(self, method: str, path: str) -> list[Request]:
        """Return the requests with this method and path, in order."""
        return [request for request in self.requests if (request.method, request.path) == (method, path)]


@contextmanager
def scripted(answer: Script) -> Iterator[ScriptedServer]:
    """Run a server on a free port that answers by `answer`; a dict or list is sent as JSON."""
    http = _Server(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server = ScriptedServer(f"http://127.0.0.1:{http.server_port}/api")
    http.RequestHandlerClass = _handler(server, answer)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Do not log clients that gave up waiting."""


def _handler(server: ScriptedServer, answer: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body leave in two writes: without this the second waits for the first one's ACK.
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            server.connections.add(self.client_address[1])
            split = urlsplit(self.path)
            request = Request(
                self.command,
                split.path.removeprefix("/api"),
                dict(parse_qsl(split.query)),
                self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("utf-8", "replace"),
                self.headers.get("X-Authorization"),
            )
            server.requests.append(request)
            status, body = answer(request)
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            if not isinstance(body, str):
                self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    return Handler
