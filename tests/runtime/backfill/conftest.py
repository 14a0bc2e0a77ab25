"""A world of backfills on every lake of the contract suite's registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.runtime.observe import logs
from tests.contract.lakes import LAKES
from tests.support.worlds.backfill_world import BackfillWorld


@pytest.fixture(autouse=True)
def own_log_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the fields of all log lines: these rows run on threads, and in a process of a map one after another."""
    monkeypatch.setattr(logs, "_everywhere", {})


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items()])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackfillWorld]:
    """An empty branch `main`."""
    with LAKES[request.param].open(request) as opened:
        yield BackfillWorld(opened.lake, opened.repository, tmp_path)
