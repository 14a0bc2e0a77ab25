"""The two transfer routes, through lakeFS's gateway and directly to the store: elapsed time and CPU time.

This runs on production servers only, since others cannot presign.  Every turn uploads the set to a new branch and
downloads it with an empty cache, by one route.  The routes take turns.  CPU seconds are given for the lakeFS process
and, separately, for the store: the operator pays for both, but only one of them is lakeFS.  `auto` is the default
setting of a worker.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import lakefs_sdk

from bench import Row
from bench.harness import Context, cpu_seconds, create_repository, lakefs_client, lakefs_lake, timed
from bench.kinds import PRODUCTION
from perago.lake.base import Download, Upload
from perago.lake.lakefs.lake import LakeFSLake

NAME = "Presigned transfer beside the gateway"
SERVERS = True
KINDS = (PRODUCTION,)
KB, MB = 1024, 1024 * 1024
Way = Literal["gateway", "presigned", "auto"]
_WAYS: tuple[Way, ...] = ("gateway", "presigned", "auto")
_ROUNDS = 3
_BLOCK = 64 * KB


@dataclass(slots=True)
class Cost:
    """The lowest cost of one direction by one route."""

    seconds: float = float("inf")
    lakefs: float = float("inf")
    store: float = float("inf")

    def of(self, context: Context, work: Callable[[], object]) -> None:
        """Run `work`, and record its cost if it is lower than before."""
        before = {server: cpu_seconds(context, server) for server in ("lakefs", "store")}
        self.seconds = min(self.seconds, timed(work))
        self.lakefs = min(self.lakefs, cpu_seconds(context, "lakefs") - before["lakefs"])
        self.store = min(self.store, cpu_seconds(context, "store") - before["store"])


@dataclass(slots=True)
class Costs:
    """The costs of one route, up and down."""

    up: Cost = field(default_factory=Cost)
    down: Cost = field(default_factory=Cost)


def run() -> list[Row]:
    """Measure all figures."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        context = Context(Path(folder))
        sets = {"2,000 of 10 KB": (2_000, 10 * KB), "20 of 50 MB": (20, 50 * MB)}
        if context.quick:
            sets = {"100 of 10 KB": (100, 10 * KB), "2 of 20 MB": (2, 20 * MB)}
        return [row for name, (count, size) in sets.items() for row in _of_set(context, name, count, size)]


def _of_set(context: Context, name: str, count: int, size: int) -> list[Row]:
    context.say(name)
    server, repository = lakefs_client(context), f"bench-{uuid.uuid4().hex[:12]}"
    create_repository(server, repository)
    costs = {way: Costs() for way in _WAYS}
    try:
        for _ in range(1 if context.quick else _ROUNDS):
            for way in _WAYS:
                _turn(context, repository, way, _uploads(context.folder, count, size), costs[way])
    finally:
        lakefs_sdk.RepositoriesApi(server).delete_repository(repository, force=True)
    return [
        row
        for direction in ("up", "down")
        for row in _rows(f"{name} {direction}", {way: getattr(costs[way], direction) for way in _WAYS})
    ]


def _turn(context: Context, repository: str, way: Way, uploads: Sequence[Upload], costs: Costs) -> None:
    """Upload a set to a new branch and download it again, by one route."""
    branch, got = f"turn-{uuid.uuid4().hex}", context.folder / uuid.uuid4().hex
    got.mkdir()
    with _lake(context, way) as lake:
        lake.create_branch(repository, branch, lake.head(repository, "main").id)
        costs.up.of(context, lambda: lake.upload(repository, branch, uploads))
        ref = lake.commit(repository, branch, "turn", {})
        entries = list(lake.list(repository, ref, ""))
        files = [Download(entry, got / str(number)) for number, entry in enumerate(entries)]
        costs.down.of(context, lambda: lake.download(repository, ref, files))
    shutil.rmtree(got)


def _rows(what: str, costs: dict[Way, Cost]) -> list[Row]:
    gateway, presigned = costs["gateway"], costs["presigned"]
    return [
        *(Row(f"{what}: {way}", cost.seconds, "s") for way, cost in costs.items()),
        *(Row(f"{what}: {way}, CPU of lakeFS", cost.lakefs, "s") for way, cost in costs.items()),
        *(Row(f"{what}: {way}, CPU of the store", cost.store, "s") for way, cost in costs.items()),
        Row(f"{what}: gateway / presigned", gateway.seconds / presigned.seconds, "times"),
        # The CPU clock ticks every 10 ms. Less than one tick counts as one.
        Row(
            f"{what}: gateway / presigned, CPU of lakeFS",
            gateway.lakefs / max(presigned.lakefs, 0.01),
            "times",
        ),
    ]


def _uploads(folder: Path, count: int, size: int) -> list[Upload]:
    """Create new files, no two of them alike, because a store might skip bytes that it already has."""
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    uploads = []
    for number in range(count):
        content = os.urandom(min(size, _BLOCK)) * (size // min(size, _BLOCK))
        file = source / str(number)
        file.write_bytes(content)
        uploads.append(
            Upload(file, f"d{number % 20:02}/f{number:06}.bin", size, hashlib.md5(content).hexdigest())
        )
    return uploads


@contextmanager
def _lake(context: Context, way: Way) -> Iterator[LakeFSLake]:
    """Yield our adapter with an empty cache."""
    cache = context.folder / uuid.uuid4().hex
    with lakefs_lake(context, cache, way) as lake:
        yield lake
    shutil.rmtree(cache, ignore_errors=True)
