"""Fixtures of the sweep's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from tests.support.worlds.clock import Clock
from tests.support.worlds.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An embedded lake and orchestrator on one clock that only the test advances."""
    clock = Clock()
    lake = LocalLake(tmp_path / "lake", clock=lambda: int(clock.now * 1e9))
    lake.create_repository("songs")
    made = World(lake, "songs", tmp_path, clock)
    made.commit({"data/input.txt": "in"})
    yield made
    made.orchestrator.close()
    lake.close()
