"""An OpenTelemetry collector over HTTP: it keeps the spans that it is sent, or answers as a test says."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, slots=True)
class Received:
    """One span as it arrived.  Ids are hex digits; `parent` is empty for a root span."""

    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    message: str
    began: int
    ended: int
    attributes: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """The collector's address and what it has received."""

    url: str
    spans: list[Received] = field(default_factory=list)
    requests: int = 0

    def named(self, name: str) -> list[Received]:
        """Return the spans with this name, by their beginning."""
        return sorted((one for one in self.spans if one.name == name), key=lambda one: one.began)

    def below(self, parent: Received) -> list[Received]:
        """Return the children of a span, by their beginning."""
        return sorted((one for one in self.spans if one.parent == parent.id), key=lambda one: one.began)


@contextmanager
def collecting(*, status: int = 200, seconds: float = 0.0) -> Iterator[Collector]:
    """Run a collector on a free port that answers with a status after some seconds."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            collector.requests += 1
            stop.wait(seconds)
            if status == 200 and self.path == "/v1/traces":
                packed = self.headers.get("Content-Encoding") == "gzip"
                collector.spans += _spans(gzip.decompress(data) if packed else data)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Do not log clients that gave up waiting."""

    http = Server(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        stop.set()
        http.shutdown()
        http.server_close()
        thread.join()


def _spans(data: bytes) -> list[Received]:
    sent = ExportTraceServiceRequest.FromString(data)
    return [
        Received(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.status.code == 2,
            span.status.message,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            {one.key: one.value.string_value or one.value.int_value for one in span.attributes},
        )
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
