"""The worlds of worker tests: on the embedded servers, and on the real ones if they are up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tasks.forked_steps import EIGHT
from tests.support.tasks.forked_workflows import start_worker
from tests.support.worlds.worker_world import WorkerWorld, open_worker_world

REAL = pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow])
PRODUCTION = pytest.param("production", marks=[pytest.mark.servers, pytest.mark.slow])


@pytest.fixture(params=["local", REAL])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkerWorld]:
    """Open a world with a repository whose main holds one file in the tasks' prefix."""
    with open_worker_world(request, request.param, tmp_path) as made:
        yield made


@pytest.fixture(
    scope="module",
    params=[
        "local",
        pytest.param("real, soft", marks=pytest.mark.servers),
        pytest.param("real, hard", marks=pytest.mark.servers),
    ],
)
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerWorld]:
    """Open a world with one worker of eight executors for the forked tasks; each test has its own branch."""
    with open_worker_world(
        request, request.param.partition(",")[0], tmp_path_factory.mktemp("crowd")
    ) as made:
        if request.param.endswith("hard"):
            from perago.lake.lakefs.fence import Fence

            # Branches made from main have it too.
            Fence(made.lake).install(made.repository, "main")
        start_worker(made, slots=EIGHT)
        yield made
