"""Every step of an attempt, and a death or a goodbye at its beginning.

The observer that kills is passed in; the worker knows nothing of it.  On the embedded servers every step is met by
every ending, on the real ones by one of them: what differs there is what the servers keep, not what the worker does.
"""

from __future__ import annotations

import os
import signal

import pytest

from perago.orchestrator.base import WorkflowState
from perago.protocol.steps import (
    BODY,
    CHANGES,
    CLAIM,
    CLEANUP,
    DOWNLOAD,
    FIRST_FENCE,
    HAND_OVER,
    INPUT,
    PLAIN_ORDER,
    POST_CHECKS,
    PRE_CHECKS,
    PUBLISH,
    RESULT,
    REUSE,
    REVOKE,
    STAGE,
    VERIFY,
    WORKDIR,
)
from tests.support.faults.observers import SignalAt
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import SHORT_LEASE, WorkerWorld

pytestmark = pytest.mark.slow
REAL_STEPS = {
    "executor": (INPUT, WORKDIR, PRE_CHECKS, BODY, POST_CHECKS, CLAIM, PUBLISH),
    "supervisor": (REVOKE, DOWNLOAD, RESULT, FIRST_FENCE, STAGE, HAND_OVER),
    "told to stop": (REUSE, VERIFY, CHANGES, CLEANUP),
}


def at_steps(ending: str) -> pytest.MarkDecorator:
    """Every step on the embedded servers, and on the real ones those that this ending has there."""
    real = [pytest.param("real", step.name, marks=pytest.mark.servers) for step in REAL_STEPS[ending]]
    return pytest.mark.parametrize(
        ("world", "step"), [*(("local", step.name) for step in PLAIN_ORDER), *real], indirect=["world"]
    )


def test_on_the_real_servers_each_step_is_met_once() -> None:
    met = [step.name for steps in REAL_STEPS.values() for step in steps]

    assert sorted(met) == sorted(step.name for step in PLAIN_ORDER)


def assert_published_once(world: WorkerWorld, before: str, done: WorkflowState) -> None:
    """Check that there is one commit on top of the input, and that it is the workflow's output."""
    assert done.status == "COMPLETED", [(task.status, task.reason) for task in done.tasks]
    history = [commit.id for commit in world.history()]
    assert history[1] == before
    assert history[0] == done.output["ref"]
    assert world.files() == {"data/input.txt": "in", "data/made.txt": "made"}


@at_steps("executor")
def test_an_executor_killed_at_a_step_is_replaced_and_the_retry_publishes_once(
    world: WorkerWorld, step: str
) -> None:
    before = world.head().id
    killer = SignalAt(step, signal.SIGKILL, "executor", world.folder / "killed")
    # One slot: the attempt that follows is the replaced executor's.
    worker = world.start_worker(observe=killer, slots=1)

    done = world.finished(world.start_workflow({}))

    assert_published_once(world, before, done)
    if step != CLEANUP.name:
        assert done.tasks[0].status == "FAILED"
        assert done.tasks[0].reason == f"the executor died with signal SIGKILL at step {step!r}"
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])


@at_steps("supervisor")
def test_after_the_supervisor_is_killed_at_a_step_the_next_one_publishes_once(
    world: WorkerWorld, step: str
) -> None:
    before = world.head().id
    world.response_seconds = SHORT_LEASE
    killer = SignalAt(step, signal.SIGKILL, "supervisor", world.folder / "killed")
    first = world.start_worker(observe=killer, slots=1)
    workflow_id = world.start_workflow({})
    assert first.wait() == -signal.SIGKILL

    second = world.start_worker(slots=1)
    done = world.finished(workflow_id)

    assert_published_once(world, before, done)
    assert second.drain() == 0
    assert (world.workdirs(), world.outbox()) == ([], [])


@at_steps("told to stop")
def test_a_worker_that_gets_a_signal_at_a_step_finishes_the_attempt_first(
    world: WorkerWorld, step: str
) -> None:
    before = world.head().id
    reported = SignalAt(step, signal.SIGTERM, "supervisor", world.folder / "told")
    worker = world.start_worker(observe=reported, slots=1)
    workflow_id = world.start_workflow({})

    assert worker.wait() == 0

    done = world.finished(workflow_id)
    assert_published_once(world, before, done)
    assert [task.retry_count for task in done.tasks] == [0]
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])


def test_no_executor_outlives_its_supervisor(world: WorkerWorld) -> None:
    worker = world.start_worker()
    # Longer than the test has patience: an executor that only leaves when its body is over is found out.
    world.start_workflow({"seconds": 600})
    eventually(world.bodies, "the body runs")
    executors = worker.executors()
    assert len(executors) == 2

    worker.signal(signal.SIGKILL)

    eventually(lambda: not any(map(is_running, executors)), "the executors are gone")


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_signal_to_every_process_of_the_worker_still_drains(world: WorkerWorld) -> None:
    worker = world.start_worker()
    workflow_id = world.start_workflow({"seconds": 2})
    eventually(world.bodies, "the body runs")

    for executor in worker.executors():
        os.kill(executor, signal.SIGTERM)
    assert worker.drain() == 0

    assert [task.retry_count for task in world.finished(workflow_id).tasks] == [0]


def test_a_second_signal_kills_what_is_in_flight(world: WorkerWorld) -> None:
    worker = world.start_worker()
    workflow_id = world.start_workflow({"seconds": 60})
    eventually(world.bodies, "the body runs")

    worker.signal(signal.SIGTERM)
    eventually(lambda: "draining" in worker.said(), "the worker drains")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 1
    assert world.workdirs() == []
    assert world.workflow(workflow_id).running


def test_a_drain_that_takes_too_long_kills_what_is_in_flight(world: WorkerWorld) -> None:
    worker = world.start_worker(PERAGO_SHUTDOWN_FORCE_KILL_AFTER="1s")
    world.start_workflow({"seconds": 60})
    eventually(world.bodies, "the body runs")

    assert worker.drain() == 1

    assert world.workdirs() == []
