"""Fixtures of the workdir tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from tests.support.worlds.lake_work import Work


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        yield Work(lake, "songs", tmp_path / "files")
