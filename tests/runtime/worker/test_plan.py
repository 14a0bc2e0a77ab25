"""The times of a worker: what its settings say, and what its tasks' publish budgets ask for."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perago import TaskControls, WorkspaceSpec, task
from perago.runtime.worker.executions import Execution, Executions
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.inbox import Inbox
from perago.runtime.worker.local_executor import Processes
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.slots import Slots
from perago.settings import load_settings
from tests.runtime.worker.test_slots import NoBackend
from tests.support.servers.scripted_orchestrator import an_assignment
from tests.support.worlds.world import Made, Params, a_budget


def a_plan(*graces: int | None, **environ: str) -> WorkerPlan:
    """A worker with a task for each grace; None is a task without a budget."""
    settings = load_settings(environ)
    return WorkerPlan(
        {f"task_{number}": a_task(f"task_{number}", grace) for number, grace in enumerate(graces)},
        1,
        ExecutorSpec(NoBackend(settings), (), ()),
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


class Nowhere:
    """An engine on which nothing is started."""

    def start(self, number: int, inbox: Any, output: Any) -> Any:
        raise AssertionError("nothing is started here")

    def __str__(self) -> str:
        return "an engine"


def test_without_an_engine_all_slots_are_processes_for_all_tasks() -> None:
    plan = a_plan(None, None)

    [slot_pool] = plan.slot_pools
    assert (slot_pool.tasks, slot_pool.slots) == (("task_0", "task_1"), 1)
    assert isinstance(slot_pool.launch, Processes)


def test_with_an_engine_plain_tasks_run_there_and_spark_tasks_in_processes_beside_it() -> None:
    engine = Nowhere()
    plan = a_plan(None, None)
    spark = replace(plan.tasks["task_1"], kind="spark")
    plan = replace(plan, slots=3, engine=engine, tasks={**plan.tasks, "task_1": spark})

    on_engine, beside = plan.slot_pools
    assert (on_engine.tasks, on_engine.slots, on_engine.launch) == (("task_0",), 3, engine)
    assert (beside.tasks, beside.slots) == (("task_1",), 3)
    assert isinstance(beside.launch, Processes)
    assert beside.launch.spec.tasks == ("task_1",)
    assert "on 3 slots of an engine" in str(plan)


def test_slots_take_only_tasks_of_their_pool_and_one_pool_does_not_wait_for_the_other() -> None:
    plan = a_plan(None, None)
    spark = replace(plan.tasks["task_1"], kind="spark")
    plan = replace(plan, engine=Nowhere(), tasks={**plan.tasks, "task_1": spark})
    plain, beside = (replace(slot_pool, launch=RecordingFactory()) for slot_pool in plan.slot_pools)
    leases: Any = None
    task_logs: Any = None
    slots = Slots([plain, beside], Inbox(), Executions({}, leases, task_logs))
    for slot, _ in slots.start_due(0.0):
        slot.ready()
    waiting = deque(Execution(f"e{n}", an_assignment(f"t{n}", "task_1")) for n in range(2))
    waiting.append(Execution("plain", an_assignment("t2", "task_0")))

    assert list(slots.hand_out(waiting)) == []

    assert [execution.id for execution in waiting] == ["e1"]
    assert (slots.idle(plain), slots.idle(beside)) == (0, 0)
    [on_engine], [in_process] = plain.launch.links, beside.launch.links
    assert [run.execution_id for run in on_engine.sent] == ["plain"]
    assert [(run.execution_id, run.handouts) for run in in_process.sent] == [("e0", 1)]


class RecordingFactory:
    """Starts executors that only record what they are asked to do."""

    def __init__(self) -> None:
        self.links: list[Any] = []

    def start(self, number: int, inbox: Any, output: Any) -> Any:
        sent: list[Any] = []
        self.links.append(SimpleNamespace(sent=sent, send=sent.append))
        return self.links[-1]
