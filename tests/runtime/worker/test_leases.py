"""Attempts live as long as their worker does, and no longer."""

from __future__ import annotations

import os
import signal
import time

import pytest

from perago.protocol.steps import PUBLISH
from tests.support.faults.observers import PauseAt
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import SHORT_LEASE, WorkerWorld


@pytest.mark.slow
def test_a_task_that_runs_five_times_its_response_time_out_stays_alive(world: WorkerWorld) -> None:
    world.response_seconds = SHORT_LEASE
    world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"seconds": 5 * SHORT_LEASE}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert len(world.bodies()) == 1


@pytest.mark.slow
def test_a_body_that_holds_the_gil_keeps_its_lease(world: WorkerWorld) -> None:
    world.response_seconds = SHORT_LEASE
    world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"do": "hold the GIL", "seconds": 3 * SHORT_LEASE}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert len(world.bodies()) == 1


@pytest.mark.slow
def test_a_stopped_executor_keeps_its_lease_and_continues(world: WorkerWorld) -> None:
    world.response_seconds = SHORT_LEASE
    worker = world.start_worker(slots=1)
    workflow_id = world.start_workflow({"seconds": 1})
    eventually(world.bodies, "the body runs")
    executors = worker.executors()

    for executor in executors:
        os.kill(executor, signal.SIGSTOP)
    time.sleep(3 * SHORT_LEASE)
    for executor in executors:
        os.kill(executor, signal.SIGCONT)

    done = world.finished(workflow_id)
    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]


@pytest.mark.slow
def test_a_worker_cut_off_for_longer_than_its_lease_finds_itself_stale_and_publishes_nothing(
    world: WorkerWorld,
) -> None:
    """The first worker is stopped as a whole, as a machine that sleeps; a second one does the retry."""
    before = world.head().id
    world.response_seconds = SHORT_LEASE
    go_on = world.folder / "go-on"
    first = world.start_worker(observe=PauseAt(PUBLISH.name, world.folder / "reached", go_on), slots=1)
    workflow_id = world.start_workflow({})
    eventually((world.folder / "reached").exists, "the first worker is about to publish")
    stopped = [first.process.pid, *first.executors()]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    world.start_worker(name="second", slots=1)
    done = world.finished(workflow_id)

    go_on.touch()
    for process in stopped:
        os.kill(process, signal.SIGCONT)

    eventually(
        lambda: "stopping it" in first.said() or "no longer Conductor's current attempt" in first.said(),
        "the first worker finds that its attempt is over",
    )
    assert first.drain() == 0
    assert done.status == "COMPLETED"
    assert [commit.id for commit in world.history()[:2]] == [done.output["ref"], before]
    assert done.tasks[-1].retry_count == 1
    assert (world.workdirs(), world.branches()) == ([], [])


@pytest.mark.slow
def test_an_attempt_that_is_over_is_stopped_and_its_slot_taken_by_the_next(world: WorkerWorld) -> None:
    world.response_seconds = SHORT_LEASE
    worker = world.start_worker(slots=1)
    endless = world.start_workflow({"seconds": 600, "text": "endless"})
    eventually(world.bodies, "the body runs")

    world.terminate(endless)
    done = world.finished(world.start_workflow({"text": "next"}))

    assert done.status == "COMPLETED"
    assert "stopping it" in worker.said()
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches()) == ([], [])


@pytest.mark.slow
def test_twins_of_one_attempt_publish_once_and_complete_at_retry_0(world: WorkerWorld) -> None:
    """A running task is queued again: a second execution of the very same attempt comes about."""
    before = world.head().id
    go_on = world.folder / "go-on"
    world.start_worker()
    workflow_id = world.start_workflow({"wait_for": str(go_on)})
    eventually(world.bodies, "the first execution runs")

    world.requeue(world.workflow(workflow_id).tasks[0].task_id)
    eventually(lambda: len(world.bodies()) == 2, "the second execution runs")
    go_on.touch()

    done = world.finished(workflow_id)
    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert [commit.id for commit in world.history()[:2]] == [done.output["ref"], before]
