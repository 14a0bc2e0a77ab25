"""Attempts live as long as their worker does, and no longer."""

from __future__ import annotations

import os
import signal
import time

import pytest

from perago.protocol.steps import PUBLISH
from tests.support.faults.observers import PauseAt
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import SHORT_LEASE, Site


@pytest.mark.slow
def test_a_task_that_runs_five_times_its_response_time_out_stays_alive(site: Site) -> None:
    site.response_seconds = SHORT_LEASE
    site.start_worker(slots=1)

    done = site.finished(site.start_workflow({"seconds": 5 * SHORT_LEASE}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert len(site.bodies()) == 1


@pytest.mark.slow
def test_a_body_that_holds_the_gil_keeps_its_lease(site: Site) -> None:
    site.response_seconds = SHORT_LEASE
    site.start_worker(slots=1)

    done = site.finished(site.start_workflow({"do": "hold the GIL", "seconds": 3 * SHORT_LEASE}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert len(site.bodies()) == 1


@pytest.mark.slow
def test_a_stopped_executor_keeps_its_lease_and_goes_on(site: Site) -> None:
    site.response_seconds = SHORT_LEASE
    worker = site.start_worker(slots=1)
    workflow_id = site.start_workflow({"seconds": 1})
    eventually(site.bodies, "the body runs")
    executors = worker.executors()

    for executor in executors:
        os.kill(executor, signal.SIGSTOP)
    time.sleep(3 * SHORT_LEASE)
    for executor in executors:
        os.kill(executor, signal.SIGCONT)

    done = site.finished(workflow_id)
    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]


@pytest.mark.slow
def test_a_worker_cut_off_for_longer_than_its_lease_finds_itself_stale_and_publishes_nothing(
    site: Site,
) -> None:
    """The first worker is stopped as a whole, as a machine that sleeps; a second one does the retry."""
    before = site.head().id
    site.response_seconds = SHORT_LEASE
    go_on = site.folder / "go-on"
    first = site.start_worker(observe=PauseAt(PUBLISH.name, site.folder / "reached", go_on), slots=1)
    workflow_id = site.start_workflow({})
    eventually((site.folder / "reached").exists, "the first worker is about to publish")
    stopped = [first.process.pid, *first.executors()]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    site.start_worker(name="second", slots=1)
    done = site.finished(workflow_id)

    go_on.touch()
    for process in stopped:
        os.kill(process, signal.SIGCONT)

    eventually(
        lambda: "stopping it" in first.said() or "no longer Conductor's current attempt" in first.said(),
        "the first worker finds that its attempt is over",
    )
    assert first.drain() == 0
    assert done.status == "COMPLETED"
    assert [commit.id for commit in site.history()[:2]] == [done.output["ref"], before]
    assert done.tasks[-1].retry_count == 1
    assert (site.workdirs(), site.branches()) == ([], [])


@pytest.mark.slow
def test_an_attempt_that_is_over_is_stopped_and_its_slot_taken_by_the_next(site: Site) -> None:
    site.response_seconds = SHORT_LEASE
    worker = site.start_worker(slots=1)
    endless = site.start_workflow({"seconds": 600, "text": "endless"})
    eventually(site.bodies, "the body runs")

    site.terminate(endless)
    done = site.finished(site.start_workflow({"text": "next"}))

    assert done.status == "COMPLETED"
    assert "stopping it" in worker.said()
    assert worker.drain() == 0
    assert (site.workdirs(), site.branches()) == ([], [])


@pytest.mark.slow
def test_twins_of_one_attempt_publish_once_and_complete_at_retry_0(site: Site) -> None:
    """A running task is queued again: a second execution of the very same attempt comes about."""
    before = site.head().id
    go_on = site.folder / "go-on"
    site.start_worker()
    workflow_id = site.start_workflow({"wait_for": str(go_on)})
    eventually(site.bodies, "the first execution runs")

    site.requeue(site.workflow(workflow_id).tasks[0].task_id)
    eventually(lambda: len(site.bodies()) == 2, "the second execution runs")
    go_on.touch()

    done = site.finished(workflow_id)
    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert [commit.id for commit in site.history()[:2]] == [done.output["ref"], before]
