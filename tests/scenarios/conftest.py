"""The world of a scenario, on every lake of the registry of the contract suite; on the production lakeFS a chosen part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.lakes import LAKES
from tests.support.worlds.lakefs_world import fence
from tests.support.worlds.world import World

# What the server's database and its transfers may change: how a publication ends.  The others stay on one lakeFS.
ON_PRODUCTION = ("test_publishing", "test_fences", "test_failures_after_body")

# On a lakeFS whose main has the fence, too: what the fence and the marker of a run do together.
ON_FENCED = ("test_run_transaction",)
FENCED = "lakefs fenced"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A scenario that takes the `world` of this file takes it on each lake."""
    if "world" in metafunc.fixturenames and not hasattr(metafunc.module, "world"):
        module = metafunc.module.__name__.rpartition(".")[2]
        chosen = module in ON_PRODUCTION
        lakes = {name: kind for name, kind in LAKES.items() if chosen or name != "production"}
        worlds = [pytest.param(name, marks=kind.marks) for name, kind in lakes.items()]
        if module in ON_FENCED:
            worlds.append(pytest.param(FENCED, marks=LAKES["lakefs"].marks))
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A repository whose main holds a file in the task's prefix and files outside of it."""
    fenced = request.param == FENCED
    with LAKES["lakefs" if fenced else request.param].open(request) as opened:
        made = World(opened.lake, opened.repository, tmp_path)
        made.commit({"data/input.txt": "in", "data/deep/old.txt": "old", "database.txt": "not in the prefix"})
        if fenced:
            fence(made)
        yield made
        made.orchestrator.close()
