"""Fixtures of the embedded orchestrator's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.orchestrator.local.orchestrator import LocalOrchestrator
from tests.support.servers.local_orchestrator import TASKDEF, opened
from tests.support.worlds.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "orchestrator.db"


@pytest.fixture
def orchestrator(path: Path, clock: Clock) -> Iterator[LocalOrchestrator]:
    with closing(opened(path, clock)) as found:
        found.register_taskdefs([TASKDEF])
        yield found
