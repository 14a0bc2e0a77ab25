"""Worlds on the real lakeFS: with a fence, behind a fault proxy, on a protected branch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perago.errors import LakeForbidden
from perago.lake.lakefs.fence import Fence
from tests.conftest import LakefsServer
from tests.support.servers.lakefs import WITHOUT_WAITING, lakefs_lake
from tests.support.worlds.world import World

if TYPE_CHECKING:
    from perago.lake.lakefs.lake import LakeFSLake

INPUT = {"data/input.txt": "in", "data/deep/old.txt": "old", "database.txt": "not in the prefix"}


@contextmanager
def opened(
    server: LakefsServer, folder: Path, *, url: str | None = None, **options: Any
) -> Iterator[LakeFSLake]:
    """Open a lake on the server, or on a proxy at `url`, that does not wait between retries."""
    with lakefs_lake(server, folder / "cache", url=url, **{**WITHOUT_WAITING, **options}) as lake:
        yield lake


@contextmanager
def a_world(server: LakefsServer, repository: str, folder: Path) -> Iterator[World]:
    """Open a world whose main holds the input of the scenarios."""
    with opened(server, folder) as lake:
        world = World(lake, repository, folder)
        world.commit(INPUT)
        yield world
        world.orchestrator.close()


def fence(world: World) -> str:
    """Install the fence on main; returns the head."""
    return Fence(world.lake).install(world.repository, "main").head


def action_runs(server: LakefsServer, repository: str) -> list[str]:
    """Return the status of every action run on main, as the server lists them."""
    found: list[str] = []
    after, more = "", True
    while more:
        path = f"/repositories/{repository}/actions/runs?branch=main&amount=1000&after={after}"
        page = server.call("GET", path)
        found += [run["status"] for run in page["results"]]
        after, more = page["pagination"]["next_offset"], page["pagination"]["has_more"]
    return found


def protect(server: LakefsServer, world: World) -> None:
    """Protect main, and wait until the server applies the rule."""
    path = f"/repositories/{world.repository}/settings/branch_protection"
    server.call("PUT", path, [{"pattern": "main"}])
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            world.lake.delete(world.repository, "main", ["no-such-object"])
        except LakeForbidden:
            return
        time.sleep(0.2)
    pytest.fail("the server did not protect the branch within a minute")


def merge_by_hand(server: LakefsServer, world: World, files: Mapping[str, str]) -> str:
    """Merge into main without Perago; returns the merge commit."""
    world.lake.create_branch(world.repository, "feature", "main", hidden=False)
    world.commit(files, branch="feature")
    path = f"/repositories/{world.repository}/refs/feature/merge/main"
    return str(server.call("POST", path, {"message": "by hand"})["reference"])


def eight_at_once(work: Callable[[int], Any]) -> list[Any]:
    """Return the results of eight calls, each on its own thread."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(work, range(8)))
