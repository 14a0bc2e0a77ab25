"""The times of a worker: what its settings say, and what its tasks' publish budgets ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago import TaskControls, WorkspaceSpec, task
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.plan import WorkerPlan
from perago.settings import load_settings
from tests.runtime.worker.test_slot import NoServers
from tests.support.budgets import a_budget
from tests.support.world import Made, Params


def a_plan(*graces: int | None, **environ: str) -> WorkerPlan:
    """A worker with a task for each grace; None is a task without a budget."""
    settings = load_settings(environ)
    return WorkerPlan(
        {f"task_{number}": a_task(f"task_{number}", grace) for number, grace in enumerate(graces)},
        1,
        ExecutorSpec(NoServers(settings), (), ()),
    )


def a_task(name: str, grace: int | None) -> Any:
    budget = None
    if grace is not None:
        budget = a_budget(worker_shutdown_grace_seconds=grace)

    @task(
        name=name,
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(),
        controls=TaskControls(publish_budget=budget),
    )
    def run(workspace: Path, params: Params) -> Made: ...

    return run.__perago_task__


@pytest.mark.parametrize(
    ("graces", "setting", "seconds"),
    [
        ((None, None), "", None),
        ((40, None, 90), "", 90),
        ((40,), "20s", 20),
        ((40,), "2m", 120),
        ((), "20s", 20),
    ],
)
def test_a_drain_is_bounded_by_the_setting_and_without_one_by_the_longest_grace(
    graces: tuple[int | None, ...], setting: str, seconds: float | None
) -> None:
    plan = a_plan(*graces, PERAGO_SHUTDOWN_FORCE_KILL_AFTER=setting)

    assert plan.kill_after_seconds == seconds
