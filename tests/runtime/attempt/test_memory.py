"""The memory that a workspace of many objects takes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

MIB = 1024
EMPTY = hashlib.md5(b"", usedforsecurity=False).hexdigest()


def objects(count: int) -> Iterator[str]:
    """Paths like those of a table with many partitions, in order."""
    for number in range(count):
        yield f"plays/day=2026-{number // 1000:04}/part-{number:08}-c000.snappy.parquet"


@pytest.fixture
def listing_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server whose every repository lists so many objects."""
    paths = list(objects(request.param))
    places = {path: place for place, path in enumerate(paths)}

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            if "/objects/ls" not in self.path:
                self.answer([], "", more=False)
                return
            start = places[asked["after"][0]] + 1 if asked.get("after") else 0
            page = paths[start : start + 1000]
            self.answer(page, page[-1], more=start + 1000 < len(paths))

        def answer(self, page: list[str], following: str, *, more: bool) -> None:
            paging = {"next_offset": following, "has_more": more, "results": len(page), "max_per_page": 1000}
            results = [{"path": path, "size_bytes": 0, "checksum": EMPTY, "mtime": 1} for path in page]
            body = json.dumps({"pagination": paging, "results": results}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("listing_server", [200_000], indirect=True)
def test_two_hundred_thousand_objects_take_less_than_a_hundred_megabytes(
    listing_server: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.processes.memory_main", listing_server, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["objects"], found["states"], found["changes"]) == (200_000, 200_000, False)
    assert found["grown_kib"] < 100 * MIB
