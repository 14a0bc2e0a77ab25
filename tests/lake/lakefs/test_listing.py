"""Paged listings of a server that counts its pages wrong: they end, with all there is or with an error."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from perago.errors import LakeError
from perago.lake.lakefs.lake import LakeFSLake
from tests.conftest import LakefsServer
from tests.support.servers.lakefs import lakefs_lake

Page = tuple[list[str], str, bool]
"""Names, the offset of the next page, and whether there is one."""


@contextmanager
def lake_of(pages: dict[str, Page], folder: Path) -> Iterator[LakeFSLake]:
    """A lake on a server that answers every listing with these pages, by the offset asked for."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query).get("after", [""])[0]
            names, following, more = pages[asked]
            results = [
                {"path": name, "id": name, "commit_id": "c", "size_bytes": 1, "checksum": "0" * 32}
                for name in names
            ]
            paging = {"next_offset": following, "has_more": more, "results": len(names), "max_per_page": 1000}
            body = json.dumps({"pagination": paging, "results": results}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    nobody = LakefsServer(f"http://127.0.0.1:{server.server_address[1]}", "id", "key")
    lake = lakefs_lake(nobody, folder / "cache", cache_bytes=0)
    try:
        yield lake
    finally:
        lake.close()
        server.shutdown()
        server.server_close()
        thread.join()


def listings(lake: LakeFSLake) -> Sequence[object]:
    """Everything that comes in pages, each to be asked for by a call."""
    return (
        lambda: list(lake.list("repo", "main", "")),
        lambda: list(lake.branches("repo", "")),
        lambda: list(lake.tags("repo", "")),
        lake.repositories,
    )


@pytest.mark.parametrize("which", range(4), ids=["objects", "branches", "tags", "repositories"])
@pytest.mark.parametrize(
    "pages",
    [
        {"": (["a"], "", True)},
        {"": (["a"], "a", True), "a": (["b"], "a", True)},
        {"": (["a"], "a", True), "a": (["b"], "b", True), "b": (["c"], "a", True)},
        {"": ([f"{n:04}" for n in range(1000)], "", True)},
    ],
    ids=["never on", "in place", "in a circle", "a full page, never on"],
)
def test_a_listing_that_comes_back_to_a_page_is_an_error(
    pages: dict[str, Page], which: int, tmp_path: Path
) -> None:
    with lake_of(pages, tmp_path) as lake, pytest.raises(LakeError, match="would never end"):
        listings(lake)[which]()


def test_a_short_page_that_is_not_the_last_is_followed_by_the_rest(tmp_path: Path) -> None:
    pages: dict[str, Page] = {"": (["a"], "a", True), "a": ([], "b", True), "b": (["c", "d"], "", False)}
    with lake_of(pages, tmp_path) as lake:
        assert [entry.path for entry in lake.list("repo", "main", "")] == ["a", "c", "d"]
