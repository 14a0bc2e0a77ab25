"""The pytest plugin: fixtures for tests of Perago tasks, there in every environment that has Perago.

The rule: whoever does not use them notices nothing.  pytest imports this module at every start, so it is no part of the
package `perago`, and imports nothing of it before a fixture is asked for.  `pytest -p no:perago` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perago.testing import TrialLake, TrialWorker


@pytest.fixture
def perago_worker() -> Iterator[TrialWorker]:
    """A worker that runs tasks and workflows on `perago_lake`, in this process; its folder goes after the test."""
    from perago.testing.environment import open_environment
    from perago.testing.worker import TrialWorker

    with open_environment() as environment:
        worker = TrialWorker(environment)
        worker.lake.create({})
        yield worker


@pytest.fixture
def perago_lake(perago_worker: TrialWorker) -> TrialLake:
    """An embedded lake with one empty repository, for this test alone."""
    return perago_worker.lake


@pytest.fixture(scope="session")
def perago_spark() -> Any:
    """The one Spark session of this test process, which the Spark tasks that are tried use too."""
    from perago.testing.shared_spark import shared_session

    return shared_session()
