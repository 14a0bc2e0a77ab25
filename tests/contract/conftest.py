"""Fixtures of the contract suites: every test runs once on every adapter that is registered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from tests.conftest import ON_ONE
from tests.contract.lakes import LAKES, OpenLake
from tests.contract.orchestrators import ORCHESTRATORS, Line
from tests.support.worlds.lake_work import Work


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of the lake runs on every lake, one that takes long not on the production lakeFS."""
    if "open_lake" in metafunc.fixturenames:
        short = metafunc.function.__name__ not in ON_ONE
        lakes = {name: kind for name, kind in LAKES.items() if short or name != "production"}
        opened = [pytest.param(name, marks=kind.marks) for name, kind in lakes.items()]
        metafunc.parametrize("open_lake", opened, indirect=True)


@pytest.fixture
def open_lake(request: pytest.FixtureRequest) -> Iterator[OpenLake]:
    with LAKES[request.param].open(request) as opened:
        yield opened


@pytest.fixture
def lake(open_lake: OpenLake) -> Lake:
    return open_lake.lake


@pytest.fixture
def repository(open_lake: OpenLake) -> str:
    """A fresh repository whose branch `main` has one empty commit."""
    return open_lake.repository


@pytest.fixture
def work(open_lake: OpenLake, tmp_path: Path) -> Work:
    return Work(open_lake.lake, open_lake.repository, tmp_path / "files")


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in ORCHESTRATORS.items()])
def orchestrator(request: pytest.FixtureRequest) -> Iterator[Orchestrator]:
    with ORCHESTRATORS[request.param].open(request) as opened:
        yield opened


@pytest.fixture
def line(orchestrator: Orchestrator) -> Line:
    """A task type and a workflow name that no other test uses."""
    return Line.fresh(orchestrator)
