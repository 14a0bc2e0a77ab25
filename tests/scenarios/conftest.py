"""The world of a scenario, on every lake of the contract suite's registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.lakes import LAKES
from tests.support.world import World


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items()])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A repository whose main holds a file in the task's prefix and files outside of it."""
    with LAKES[request.param].open(request) as opened:
        made = World(opened.lake, opened.repository, tmp_path)
        made.commit({"data/input.txt": "in", "data/deep/old.txt": "old", "database.txt": "not in the prefix"})
        yield made
        made.orchestrator.close()
