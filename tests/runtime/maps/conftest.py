"""A map's run on every lake of the contract suite's registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.lakes import LAKES
from tests.support.worlds.map_world import MapWorld


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items()])
def mapped(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MapWorld]:
    """A repository whose main holds a file in the task's prefix."""
    with LAKES[request.param].open(request) as opened:
        made = MapWorld(opened.lake, opened.repository, tmp_path)
        made.commit({"data/in.txt": "in"})
        yield made
