"""The page of `perago ui` with a lot of data: 1,000 runs, and a commit of 100,000 objects, all of them in one folder.

`perago ui` runs in its own process, with the embedded servers.  Time to first byte is how long a program waits for the
first bytes of the answer.  Time to a drawn page is how long Chromium takes from the request until everything is loaded
and something is painted.  The first visit finds nothing cached.  Of the later visits, the best counts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx

from bench import Row
from perago.lake.base import Upload
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.runtime.runs.record import Run, RunEnd, orchestrator_file, save_end, save_run
from tests.support.servers.served_page import chromium

NAME = "The page: first byte and drawn page"
SERVERS = False

ROUNDS = 5
FIRST_BYTE_MS, DRAWN_MS = 200, 1000
_DRAWN = """() => Math.max(
    performance.getEntriesByType("navigation")[0].loadEventEnd,
    performance.getEntriesByName("first-contentful-paint")[0].startTime)"""


def run() -> list[Row]:
    """Measure every page, first by a program, then in the browser."""
    quick = bool(os.environ.get("PERAGO_BENCH_QUICK"))
    runs, objects = (50, 1000) if quick else (1000, 100_000)
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        root = Path(folder)
        _make_runs(root, runs)
        _make_commit(root, objects)
        here = urlencode({"repo": "many", "ref": "main"})
        pages = {
            f"{runs} runs, the list": "/runs",
            f"a commit that put {objects} objects": f"/commit?{here}",
            f"a folder of {objects} objects": f"/folder?{here}&path=data/",
            f"the history above {objects} objects": f"/history?{here}",
        }
        rows: list[Row] = []
        for what, path in pages.items():
            with _served(root) as address:
                rows += _first_byte(what, address + path)
            with _served(root) as address:
                rows += _drawn(what, address + path)
        return rows


def _first_byte(what: str, address: str) -> list[Row]:
    with httpx.Client(trust_env=False, timeout=120) as client:
        # The cost of connecting, and of the process's first answer, does not belong to the page.
        client.get(httpx.URL(address).join("/static/page.css"))
        times = [_byte_ms(client, address) for _ in range(1 + ROUNDS)]
    return [
        Row(f"{what}: first byte, first visit", times[0], "ms"),
        Row(f"{what}: first byte", min(times[1:]), "ms", FIRST_BYTE_MS),
    ]


def _byte_ms(client: httpx.Client, address: str) -> float:
    began = time.perf_counter()
    with client.stream("GET", address) as answer:
        next(answer.iter_raw())
        took = time.perf_counter() - began
        answer.raise_for_status()
    return took * 1000


def _drawn(what: str, address: str) -> list[Row]:
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        for _ in range(1 + ROUNDS):
            page.goto(address, wait_until="load")
            # Polled by hand: the page's content security policy forbids the script that Playwright's wait evaluates.
            while not page.evaluate("() => performance.getEntriesByName('first-contentful-paint').length"):
                page.wait_for_timeout(10)
            times.append(float(page.evaluate(_DRAWN)))
        browser.close()
    return [
        Row(f"{what}: drawn, first visit", times[0], "ms"),
        Row(f"{what}: drawn", min(times[1:]), "ms", DRAWN_MS),
    ]


@contextmanager
def _served(root: Path) -> Iterator[str]:
    """Run `perago ui` in its own process, and yield its address."""
    command = [sys.executable, "-m", "perago", "ui", "--root", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process.stdout.readline().strip().rstrip("/") if process.stdout else ""
        finally:
            process.terminate()


def _make_runs(root: Path, count: int) -> None:
    """Create this many runs as `perago run` leaves them. One in ten failed, and one in ten was stopped early."""
    first = root / "first.db"
    orchestrator = LocalOrchestrator(first)
    steps = [{"name": "t", "taskReferenceName": f"step{number}", "type": "SIMPLE"} for number in range(5)]
    orchestrator.register_taskdefs([{"name": "t"}])
    orchestrator.register_workflow({"name": "flow", "version": 1, "schemaVersion": 2, "tasks": steps})
    workflow_id = orchestrator.start_workflow("flow", input={})
    orchestrator.close()
    for number in range(count):
        run = Run(f"20260101-{number:06}-abcdef", workflow_id, "flow", ["tasks.py"], str(root))
        save_run(root, run)
        shutil.copy(first, orchestrator_file(root, run.id))
        if number % 10 == 0:
            continue
        failed = "step3: the third row has no date" if number % 10 == 1 else ""
        save_end(
            root, run.id, RunEnd("FAILED" if failed else "COMPLETED", float(number), number + 7.0, failed)
        )


def _make_commit(root: Path, count: int) -> None:
    """Create a repository whose head commit added this many objects to one folder."""
    source = root / "one.bin"
    source.write_bytes(b"x" * 100)
    checksum = hashlib.new(LocalLake.checksum_algorithm, source.read_bytes()).hexdigest()
    lake = LocalLake(root / "lake")
    lake.create_repository("many")
    lake.upload("many", "main", [Upload(source, f"data/{n:07}.bin", 100, checksum) for n in range(count)])
    lake.commit("many", "main", "many objects", {})
    lake.close()
