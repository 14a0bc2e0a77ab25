"""The real lakeFS: transfers, stage, publish and memory, compared with lakectl, a raw obstore loop and perago 0.6.1.

    download             list, get, write and index, as an attempt does, with an empty cache, until the body may begin
    download, verified   the same, until every byte is verified, if the body takes no time; otherwise the rest is hashed
                         while it runs
    again                the same, with the cache that the first download filled
    stage                find 1 changed file among many, upload it, commit it

The raw loop is given the names, and only gets and writes.  On production servers there is a second one, which reads
directly from the store.  lakectl does not verify what it has fetched.  A verified download has to hash every byte, so
it is compared with a raw loop that hashes too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lakefs_sdk

from bench import Row
from bench.harness import Context, create_repository, in_turns, lakefs_client, lakefs_lake, timed
from bench.kinds import BOTH
from bench.peers import Lakectl, OldPerago, RawLoop, RawStore
from perago.lake.base import Merge, Upload, Verification
from perago.lake.lakefs.lake import LakeFSLake
from perago.protocol.attempt import Attempt
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir

NAME = "The real lakeFS: transfers, stage, publish, memory"
SERVERS = True
KINDS = BOTH
KB, MB = 1024, 1024 * 1024
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Data:
    """A set of objects of the same size below one prefix."""

    name: str
    count: int
    size: int

    @property
    def prefix(self) -> str:
        """The path prefix of the objects."""
        return f"{self.name}/"

    def paths(self) -> list[str]:
        """Return the objects' paths, spread over twenty folders."""
        return [f"{self.prefix}d{n % 20:02}/f{n:06}.bin" for n in range(self.count)]


class Bench:
    """One repository on the server, and the contenders that use it."""

    def __init__(self, context: Context, server: lakefs_sdk.ApiClient, repository: str) -> None:
        self.context = context
        self.server = server
        self.repository = repository
        self.raw = RawLoop(context, repository)
        self.store = RawStore(context) if context.environ.get("PERAGO_DEV_STORE_URL") else None
        self.lakectl = Lakectl(context)
        self.old = OldPerago(context)
        self._folder = context.folder / repository
        self._folder.mkdir()

    def folder(self) -> Path:
        """Return the path for a new folder."""
        return self._folder / uuid.uuid4().hex

    def clear(self) -> None:
        """Remove all folders, because the large set fills disks."""
        shutil.rmtree(self._folder)

    def lake(self, cache: Path) -> LakeFSLake:
        """Return our adapter with this cache."""
        return lakefs_lake(self.context, cache)

    def put(self, data: Data) -> str:
        """Upload and commit a set of objects, as Perago would."""
        source = self.folder()
        source.mkdir()
        uploads = []
        for number, path in enumerate(data.paths()):
            file = source / str(number)
            # Random enough for every object to differ, and quick to generate.
            content = os.urandom(min(data.size, 64 * KB)) * (data.size // min(data.size, 64 * KB))
            file.write_bytes(content)
            uploads.append(Upload(file, path, len(content), hashlib.md5(content).hexdigest()))
        with self.lake(self.folder()) as lake:
            lake.upload(self.repository, "main", uploads)
            return lake.commit(self.repository, "main", f"put {data.name}", {})

    def filled(self, cache: Path, ref: str, data: Data) -> tuple[float, float]:
        """Return the seconds to fill a new workdir until a body may begin, and until everything is verified."""
        workdir = self.workdir()
        with self.lake(cache) as lake, Verification() as verification:
            workspace = Workspace(self.repository, "main", ref, data.prefix)
            lake.head(self.repository, "main")
            there = timed(lambda: workdir.fill(lake, workspace, verification=verification))
            return there, there + timed(verification.wait)

    def workdir(self) -> Workdir:
        """Return a new workdir like that of an attempt."""
        attempt = Attempt("bench", uuid.uuid4().hex, "step", "bench", retry_count=0, seq=1, iteration=0)
        return Workdir.create(self._folder / "work", attempt, uuid.uuid4().hex[:16], now=time.time())

    def object_gets(self) -> int:
        """Return how many objects the server's gateway and API have served, according to its own counters."""
        address = f"{self.context.needed('LAKECTL_SERVER_ENDPOINT_URL')}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        counted = [line for line in lines if "_request_duration_seconds_count{" in line]
        gets = [
            line for line in counted if 'operation="get_object"' in line or 'operation="GetObject"' in line
        ]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in gets)


def run() -> list[Row]:
    """Measure all figures."""
    with tempfile.TemporaryDirectory(prefix="perago-bench-") as folder:
        return _figures(Context(Path(folder)))


def _figures(context: Context) -> list[Row]:
    sets = [
        Data("small-2000", 2_000, 10 * KB),
        Data("small-10000", 10_000, 10 * KB),
        Data("large-20", 20, 50 * MB),
    ]
    if context.quick:
        sets = [Data("small-200", 200, 10 * KB), Data("large-3", 3, 20 * MB)]
    rows: list[Row] = []
    for data in sets:
        with _bench(context) as bench:
            context.say(data.name)
            ref = bench.put(data)
            rows += _downloads(bench, ref, data)
            if data.name == sets[-2].name:
                rows += _stage(bench, ref, data)
    with _bench(context) as bench:
        rows += _publish(bench, rounds=5 if context.quick else 40)
        rows += _memory(bench, (64 if context.quick else 2048) * MB)
    return rows


def _downloads(bench: Bench, ref: str, data: Data) -> list[Row]:
    small = data.size < MB
    objects = [(path, data.size) for path in data.paths()]
    caches = iter([bench.folder() for _ in range(_ROUNDS)])
    moved: list[float] = []
    again: list[float] = []
    verified: list[float] = []
    again_verified: list[float] = []

    def ours() -> float:
        cache = next(caches)
        first, first_verified = bench.filled(cache, ref, data)
        verified.append(first_verified)
        before = bench.object_gets()
        there, all_verified = bench.filled(cache, ref, data)
        again.append(there)
        again_verified.append(all_verified)
        moved.append(bench.object_gets() - before)
        return first

    turns: dict[str, Callable[[], float]] = {
        "raw": lambda: bench.raw.download(ref, objects, bench.folder()),
        "raw with MD5": lambda: bench.raw.download(ref, objects, bench.folder(), md5=True),
        "ours": ours,
        "lakectl": lambda: bench.lakectl.clone(
            f"lakefs://{bench.repository}/main/{data.prefix}", bench.folder()
        ),
    }
    straight = "raw, straight from the store"
    if bench.store is not None:
        found = bench.store.objects(bench.server, (bench.repository, ref, data.prefix), objects)
        turns[straight] = lambda: bench.store.download(found, bench.folder())
    best = in_turns(turns, _ROUNDS)
    old = bench.old.run(repository=bench.repository, ref=ref, prefix=data.prefix, folder=str(bench.folder()))
    name = data.name
    return [
        Row(f"{name}: download", best["ours"], "s"),
        Row(f"{name}: download, verified", min(verified), "s"),
        Row(f"{name}: download again, from the cache", min(again), "s"),
        Row(f"{name}: download again, from the cache, verified", min(again_verified), "s"),
        *(Row(f"{name}: {peer}", best[peer], "s") for peer in best if peer != "ours"),
        Row(f"{name}: perago 0.6.1", old["download"], "s"),
        Row(f"{name}: download / raw loop", best["ours"] / best["raw"], "times", 1.3),
        Row(f"{name}: download, verified / raw with MD5 loop", min(verified) / best["raw with MD5"], "times"),
        Row(
            f"{name}: lakectl local clone / download", best["lakectl"] / best["ours"], "times", 1, "at least"
        ),
        Row(
            f"{name}: perago 0.6.1 / download",
            old["download"] / best["ours"],
            "times",
            5 if small else None,
            "at least",
        ),
        Row(f"{name}: download / again", best["ours"] / min(again), "times", 3, "at least"),
        # Transfers that bypass lakeFS are not in its counters.
        *(
            []
            if bench.store
            else [Row(f"{name}: objects fetched again, by the server's counters", max(moved), "objects", 0)]
        ),
    ]


def _stage(bench: Bench, ref: str, data: Data) -> list[Row]:
    cache = bench.folder()
    changed = data.paths()[data.count // 2]
    below = changed.removeprefix(data.prefix)
    workspace = Workspace(bench.repository, "main", ref, data.prefix)
    with bench.lake(cache) as lake:
        workdir = bench.workdir()
        workdir.fill(lake, workspace)

        def ours() -> float:
            (workdir.path / below).write_bytes(os.urandom(data.size))
            return timed(lambda: _stage_once(lake, workdir, workspace))

        clone = bench.folder()
        lake.create_branch(bench.repository, "lakectl", ref)
        bench.lakectl.clone(f"lakefs://{bench.repository}/lakectl/{data.prefix}", clone)

        def lakectl() -> float:
            (clone / below).write_bytes(os.urandom(data.size))
            return bench.lakectl.commit(clone, "one changed")

        best = in_turns({"ours": ours, "lakectl": lakectl}, _ROUNDS)
    bench.context.say("stage by perago 0.6.1, which sends everything")
    folder = str(bench.folder())
    old = bench.old.run(repository=bench.repository, ref=ref, prefix=data.prefix, folder=folder, change=below)
    what = f"stage after 1 change of {data.count}"
    return [
        Row(what, best["ours"], "s"),
        Row(f"{what}: lakectl local commit", best["lakectl"], "s"),
        Row(f"{what}: perago 0.6.1", old["stage"], "s"),
        Row(f"{what}: lakectl / ours", best["lakectl"] / best["ours"], "times", 1, "at least"),
        Row(f"{what}: perago 0.6.1 / ours", old["stage"] / best["ours"], "times", 100, "at least"),
    ]


def _stage_once(lake: LakeFSLake, workdir: Workdir, workspace: Workspace) -> None:
    states = workdir.result(lake, workspace)
    changes = states.changes()
    branch = f"stage-{uuid.uuid4().hex}"
    lake.create_branch(workspace.repository, branch, workspace.ref)
    uploads = [
        Upload(workdir.path / path, workspace.prefix + path, states[path].size, states[path].checksum or "")
        for path in changes.put
    ]
    lake.upload(workspace.repository, branch, uploads)
    lake.commit(workspace.repository, branch, "one changed", {})


def _publish(bench: Bench, rounds: int) -> list[Row]:
    """Time the branch, put, commit and merge of one small file, by the adapter and by bare calls, in turns."""
    branches, refs = lakefs_sdk.BranchesApi(bench.server), lakefs_sdk.RefsApi(bench.server)
    commits = lakefs_sdk.CommitsApi(bench.server)
    repository, file = bench.repository, bench.folder()
    with bench.lake(bench.folder()) as lake:

        def ours(data: bytes, head: str) -> None:
            file.write_bytes(data)
            upload = Upload(file, "a", len(data), hashlib.md5(data).hexdigest())
            branch = f"side-{uuid.uuid4().hex}"
            lake.create_branch(repository, branch, head)
            lake.upload(repository, branch, [upload])
            lake.commit(repository, branch, "stage", {"perago.phase": "try"})
            lake.merge(repository, Merge(branch, "main", head, "publish", {}, 60))

        def raw(data: bytes, head: str) -> None:
            branch = f"side-{uuid.uuid4().hex}"
            wanted = lakefs_sdk.BranchCreation(name=branch, source=head, hidden=True)
            branches.create_branch(repository, wanted)
            bench.raw.put(branch, "a", data)
            commits.commit(repository, branch, lakefs_sdk.CommitCreation(message="stage", metadata={}))
            refs.merge_into_branch(
                repository, branch, "main", merge=lakefs_sdk.Merge(message="publish", squash_merge=True)
            )

        taken: dict[str, list[float]] = {"ours": [], "raw": []}
        for _ in range(rounds):
            for name, work in (("ours", ours), ("raw", raw)):
                head = lake.head(repository, "main").id
                start = time.perf_counter()
                work(os.urandom(1000), head)
                taken[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(times) for name, times in taken.items()}
    return [
        Row("publish one file", middle["ours"] * 1000, "ms"),
        Row("publish one file: bare calls", middle["raw"] * 1000, "ms"),
        Row("publish one file: ours / bare calls", middle["ours"] / middle["raw"], "times", 1.5),
    ]


def _memory(bench: Bench, size: int) -> list[Row]:
    """Measure the peak of extra memory while uploading and downloading one large file."""
    file, rows = bench.folder(), []
    block = os.urandom(16 * MB)
    with file.open("wb") as out:
        for number in range(size // len(block)):
            out.write(number.to_bytes(8, "big") + block[8:])
    for way, target in (("up", file), ("down", bench.folder())):
        what = {"way": way, "repository": bench.repository, "file": str(target), "cache": str(bench.folder())}
        script = Path(__file__).parent / "scripts" / "move_large.py"
        done = subprocess.run(
            [sys.executable, script, json.dumps(what)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        figures = json.loads(done.stdout)
        label = f"one file of {size // MB} MB {way}"
        rows.append(Row(f"{label}: peak extra memory", figures["extra"] / MB, "MB", 200))
        rows.append(Row(f"{label}: time", figures["seconds"], "s"))
    return rows


@contextmanager
def _bench(context: Context) -> Iterator[Bench]:
    """Yield a bench with a new repository, which is deleted at the end of the block."""
    server, name = lakefs_client(context), f"bench-{uuid.uuid4().hex[:12]}"
    create_repository(server, name)
    bench = Bench(context, server, name)
    try:
        yield bench
    finally:
        bench.clear()
        lakefs_sdk.RepositoriesApi(server).delete_repository(name, force=True)
