"""Serves `/healthz` and `/metrics` on a port, using only the standard library.

Responses are built from state in memory, never by calling a server, so a slow server cannot delay a health probe.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from perago.errors import RuntimeConfigError
from perago.runtime.observe.health import Health

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS = 10.0


def parse_address(text: str) -> tuple[str, int]:
    """Parse PORT or HOST:PORT. Without a host, the server is reachable only from this machine."""
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise RuntimeConfigError(f"--http {text!r} is not PORT or HOST:PORT, such as 8080 or 0.0.0.0:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


class StatusServer:
    """Serves the status of this process while the block runs."""

    def __init__(
        self, address: tuple[str, int], *, health: Callable[[], Health], metrics: Callable[[], bytes]
    ) -> None:
        try:
            self._http = _Server(address, _handler(health, metrics))
        except OSError as error:
            host, port = address
            raise RuntimeConfigError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; choose another --http"
            ) from error
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, name="perago-http", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """The address that the server listens on, with the actual port if 0 was requested."""
        host, port = self._http.server_address[:2]
        return str(host), port

    def __enter__(self) -> StatusServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore an error in handling a request: the client has usually disconnected."""


def _handler(health: Callable[[], Health], metrics: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    def answer(path: str) -> tuple[int, str, bytes]:
        match path.partition("?")[0]:
            case "/healthz":
                verdict = health()
                return (
                    200 if verdict.healthy else 503,
                    "application/json",
                    json.dumps(_as_json(verdict)).encode(),
                )
            case "/metrics":
                return 200, METRICS_TYPE, metrics()
            case _:
                return 404, "text/plain", b"/healthz or /metrics\n"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            status, content_type, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler


def _as_json(verdict: Health) -> dict[str, Any]:
    return {
        "healthy": verdict.healthy,
        "reasons": list(verdict.reasons),
        "poll_age_seconds": {task: round(age, 3) for task, age in verdict.poll_age.items()},
        "supervisor_age_seconds": round(verdict.supervisor_age, 3),
        "in_flight": verdict.in_flight,
    }
