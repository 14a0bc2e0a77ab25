"""The pytest plugin: fixtures for testing Perago tasks, available wherever Perago is installed.

Tests that do not use the fixtures must not notice the plugin.  pytest imports this module at every start, so it is not
part of the package `perago`, and imports nothing from it until a fixture is requested.  `pytest -p no:perago` disables
the plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perago.testing import TrialLake, TrialWorker


@pytest.fixture
def perago_worker() -> Iterator[TrialWorker]:
    """A worker that runs tasks and workflows on `perago_lake`, in this process.

    Its folder is removed after the test.
    """
    from perago.testing.environment import open_environment
    from perago.testing.worker import TrialWorker

    with open_environment() as environment:
        worker = TrialWorker(environment)
        worker.lake.create({})
        yield worker


@pytest.fixture
def perago_lake(perago_worker: TrialWorker) -> TrialLake:
    """An embedded lake with one empty repository, used only by this test."""
    return perago_worker.lake


@pytest.fixture(scope="session")
def perago_spark() -> Any:
    """The one Spark session of this test process, which trials of Spark tasks also use."""
    from perago.testing.environment import shared_session

    return shared_session()
