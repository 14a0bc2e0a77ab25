"""Code that the benches share: the servers' environment, a folder, and turns between contenders.

Contenders take turns, and the best turn of each counts, since other load on the machine can only make a turn slower.
`PERAGO_BENCH_QUICK=1` selects small inputs, which show that a bench runs, not how fast.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lakefs_sdk

from perago.lake.lakefs.lake import LakeFSLake
from perago.lake.lakefs.transfer.routing import TransferMode


@dataclass(frozen=True, slots=True)
class Context:
    """The folder and the environment of a bench. The environment names the servers and may ask for small inputs."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def quick(self) -> bool:
        """True if small inputs are enough."""
        return bool(self.environ.get("PERAGO_BENCH_QUICK"))

    def needed(self, name: str) -> str:
        """Return a variable from the servers' environment. Exits if it is not set."""
        value = self.environ.get(name)
        if not value:
            raise SystemExit(f"{name} is not set: run `make bench`")
        return value

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(text, file=sys.stderr, flush=True)


def lakefs_client(context: Context) -> lakefs_sdk.ApiClient:
    """Return a client from lakeFS's own SDK, for setting up a bench."""
    configuration = lakefs_sdk.Configuration(
        host=f"{context.needed('LAKECTL_SERVER_ENDPOINT_URL')}/api/v1",
        username=context.needed("LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
        password=context.needed("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
    )
    return lakefs_sdk.ApiClient(configuration)


def create_repository(server: lakefs_sdk.ApiClient, name: str) -> None:
    """Create an empty repository in the server's store."""
    bucket = os.environ.get("PERAGO_DEV_STORE_BUCKET")
    # A fresh lakeFS rejects a storage namespace that its predecessor has used.
    place = f"{name}-{uuid.uuid4().hex[:8]}"
    namespace = f"s3://{bucket}/{place}" if bucket else f"local://{place}"
    wanted = lakefs_sdk.RepositoryCreation(name=name, storage_namespace=namespace, default_branch="main")
    lakefs_sdk.RepositoriesApi(server).create_repository(wanted)


def dev_cache() -> Path:
    """Return the folder outside the checkout where peers are installed. dev/servers uses the same folder."""
    chosen = os.environ.get("PERAGO_DEV_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen).expanduser().absolute() if chosen else Path(base) / "perago-dev"


def cpu_seconds(context: Context, server: str) -> float:
    """Return the CPU seconds that a server from dev/servers has used since its start, including its child processes."""
    pid = Path(context.needed("PERAGO_DEV_SERVERS"), f"{server}.pid").read_text().strip()
    children: dict[str, list[str]] = {}
    ticks: dict[str, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The fields after the name, which may contain spaces: the parent pid and, further on, the user and system
            # ticks of the process itself, then those of its terminated children.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(fields[1], []).append(stat.parent.name)
        ticks[stat.parent.name] = sum(map(int, fields[11:15]))
    family, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        family += ticks.get(one, 0)
        waiting += children.get(one, ())
    return family / os.sysconf("SC_CLK_TCK")


def servers_cpu_seconds(context: Context) -> float:
    """Return the CPU seconds that all servers in the set have used together."""
    names = [file.stem for file in Path(context.needed("PERAGO_DEV_SERVERS")).glob("*.pid")]
    return sum(cpu_seconds(context, name) for name in names)


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return each contender's best time in `rounds` turns. A contender returns the seconds that its turn took."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, turn in contenders.items():
            best[name] = min(turn(), best.get(name, float("inf")))
    return best


def lakefs_lake(
    context: Context, cache: Path, transfer: TransferMode = "auto", *, cache_bytes: int = 10**11
) -> LakeFSLake:
    """Return our adapter for the server in the environment, with a cache so large that it evicts nothing, by default."""
    return LakeFSLake(
        context.needed("LAKECTL_SERVER_ENDPOINT_URL"),
        access_key_id=context.needed("LAKECTL_CREDENTIALS_ACCESS_KEY_ID"),
        secret_access_key=context.needed("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"),
        cache_dir=cache,
        cache_bytes=cache_bytes,
        transfer=transfer,
    )
