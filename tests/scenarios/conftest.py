"""The world of a scenario, on every lake of the registry of the contract suite; on the production lakeFS a chosen part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.lakes import LAKES
from tests.support.worlds.world import World

# What the server's database and its transfers may change: how a publication ends.  The others stay on one lakeFS.
ON_PRODUCTION = ("test_publishing", "test_fences", "test_failures_after_body")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A scenario that takes the `world` of this file takes it on each lake."""
    if "world" in metafunc.fixturenames and not hasattr(metafunc.module, "world"):
        chosen = metafunc.module.__name__.rpartition(".")[2] in ON_PRODUCTION
        lakes = {name: kind for name, kind in LAKES.items() if chosen or name != "production"}
        worlds = [pytest.param(name, marks=kind.marks) for name, kind in lakes.items()]
        metafunc.parametrize("world", worlds, indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A repository whose main holds a file in the task's prefix and files outside of it."""
    with LAKES[request.param].open(request) as opened:
        made = World(opened.lake, opened.repository, tmp_path)
        made.commit({"data/input.txt": "in", "data/deep/old.txt": "old", "database.txt": "not in the prefix"})
        yield made
        made.orchestrator.close()
