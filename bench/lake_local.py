"""The embedded lake: the cost of one tiny attempt, and evidence that a commit's cost does not grow with the lake.

    python -m bench lake_local

The bound: committing 1 changed file out of 10,000 costs at most 1.5 times as much as 1 out of 1,000, whether the files
are in one folder or spread over many.
"""

from __future__ import annotations

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import Row
from perago.lake.base import Download, Merge, Upload
from perago.lake.local.lake import LocalLake

NAME = "The embedded lake"
SERVERS = False
ROUNDS = 60
BOUND = 1.5
REPOSITORY = "bench"


def run() -> list[Row]:
    """Measure all figures. The growth in the cost of a commit has a bound."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {**attempt_figures(folder), **scaling_figures(folder), **bulk_figures(folder)}
    return [_row(what, value) for what, value in figures.items()]


def _row(what: str, value: float) -> Row:
    if what.startswith("commit_ratio"):
        shape = what.removeprefix("commit_ratio_")
        return Row(f"commit of 1 changed: 10,000 files against 1,000, {shape}", value, "times", BOUND)
    text, _, unit = what.rpartition("_")
    return Row(text.replace("_", " "), value, unit)


def attempt_figures(folder: Path) -> dict[str, float]:
    """Time the calls of one tiny attempt with one file, in milliseconds."""
    lake = new_lake(folder / "attempt")
    times: dict[str, list[float]] = {}

    def timed(step: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        times.setdefault(step, []).append((time.perf_counter() - start) * 1000)

    for number in range(ROUNDS):
        head = lake.head(REPOSITORY, "main").id
        files = uploads(folder, {"out/result.json": b"%d" % number})
        merge = Merge("stage", "main", head, "publish", {"perago.phase": "confirm"}, 60)
        timed("create_branch", lambda head=head: lake.create_branch(REPOSITORY, "stage", head))
        timed("upload", lambda files=files: lake.upload(REPOSITORY, "stage", files))
        timed("commit", lambda: lake.commit(REPOSITORY, "stage", "stage", {"perago.phase": "try"}))
        timed("merge", lambda merge=merge: lake.merge(REPOSITORY, merge))
        timed("drop_branch", lambda: lake.drop_branch(REPOSITORY, "stage"))
    lake.close()
    figures = {f"attempt_{step}_ms": round(statistics.median(taken), 3) for step, taken in times.items()}
    totals = [sum(steps) for steps in zip(*times.values(), strict=True)]
    return {**figures, "attempt_total_ms": round(statistics.median(totals), 3)}


def scaling_figures(folder: Path) -> dict[str, float]:
    """Time the upload and commit of one changed file, by the number of files and their layout."""
    figures: dict[str, float] = {}
    for shape, folders in (("flat", 1), ("spread", 100)):
        lakes = {count: filled(folder / f"{shape}-{count}", count, folders) for count in (1_000, 10_000)}
        taken: dict[int, list[float]] = {count: [] for count in lakes}
        # In turns, so that other load on the machine affects both.
        for number in range(ROUNDS):
            for count, lake in lakes.items():
                path = file_path(number * 7919 % count, folders)
                change = uploads(folder, {path: b"changed %d" % number})
                start = time.perf_counter()
                lake.upload(REPOSITORY, "main", change)
                lake.commit(REPOSITORY, "main", "change one", {})
                taken[count].append((time.perf_counter() - start) * 1000)
        for count, lake in lakes.items():
            figures[f"commit_1_of_{count}_{shape}_ms"] = round(statistics.median(taken[count]), 3)
            lake.close()
        ratio = statistics.median(taken[10_000]) / statistics.median(taken[1_000])
        figures[f"commit_ratio_{shape}"] = round(ratio, 2)
    return figures


def bulk_figures(folder: Path) -> dict[str, float]:
    """Time the upload, listing and download of 2,000 objects of 10 KB, in seconds."""
    lake = new_lake(folder / "bulk")
    data = {f"bulk/{n % 20}/{n:05}": (b"%08d" % n) * 1250 for n in range(2_000)}
    files = uploads(folder / "bulk-in", data)
    out = folder / "bulk-out"
    out.mkdir()
    start = time.perf_counter()
    lake.upload(REPOSITORY, "main", files)
    lake.commit(REPOSITORY, "main", "all", {})
    committed = time.perf_counter()
    entries = list(lake.list(REPOSITORY, "main", ""))
    listed = time.perf_counter()
    lake.download(REPOSITORY, "main", [Download(entry, out / f"{n}") for n, entry in enumerate(entries)])
    done = time.perf_counter()
    lake.close()
    spans = {"upload_and_commit": committed - start, "list": listed - committed, "download": done - listed}
    return {f"bulk_2000_{step}_s": round(span, 3) for step, span in spans.items()}


def new_lake(folder: Path) -> LocalLake:
    """Return a lake with one repository."""
    lake = LocalLake(folder)
    lake.create_repository(REPOSITORY)
    return lake


def filled(folder: Path, count: int, folders: int) -> LocalLake:
    """Return a lake with this many small files on main."""
    lake = new_lake(folder)
    objects = {file_path(number, folders): b"%d" % number for number in range(count)}
    lake.upload(REPOSITORY, "main", uploads(folder / "in", objects))
    lake.commit(REPOSITORY, "main", "fill", {})
    return lake


def file_path(number: int, folders: int) -> str:
    """Return the path of a file, when files are spread over this many folders."""
    return f"data/{number % folders:03}/file-{number:06}.bin"


def uploads(folder: Path, objects: dict[str, bytes]) -> list[Upload]:
    """Write files with these bytes, and return their uploads."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number, (path, data) in enumerate(objects.items()):
        source = folder / f"upload-{number}"
        source.write_bytes(data)
        found.append(Upload(source, path, len(data), hashlib.sha256(data).hexdigest()))
    return found
