"""A worker whose executors are hosted by jobs, without a JVM: hosts die at every step, and an engine runs jobs again."""

from __future__ import annotations

import signal

import pytest

from perago.protocol.steps import BODY, CLEANUP, HAND_OVER, PLAIN_ORDER, PUBLISH
from tests.runtime.conftest import REAL
from tests.support.faults.observers import SignalAt
from tests.support.processes.processes import ancestors, is_running
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import SHORT_LEASE, WorkerWorld

pytestmark = pytest.mark.slow
NO_RERUN, ONE_RERUN = "0 reruns", "1 rerun"


def assert_published_once(world: WorkerWorld, before: str) -> None:
    history = [commit.id for commit in world.history()]
    assert history[1] == before
    assert world.files() == {"data/input.txt": "in", "data/made.txt": "made"}


# A host is killed at once, and what it had heard of the first steps may not have left it: on a busy machine a small body
# begins before the host gets its turn.  At the last step all is said.
MAYBE_UNHEARD = {*(step.name for step in PLAIN_ORDER[: PLAIN_ORDER.index(BODY) + 1]), CLEANUP.name}


@pytest.mark.parametrize("step", [step.name for step in PLAIN_ORDER])
@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_host_killed_at_a_step_takes_its_executor_along_and_the_retry_publishes_once(
    world: WorkerWorld, step: str
) -> None:
    before = world.head().id
    killer = SignalAt(step, signal.SIGKILL, "supervisor", world.folder / "killed")
    worker = world.start_worker(observe=killer, slots=1, TEST_ENGINE=NO_RERUN)

    done = world.finished(world.start_workflow({}))

    assert done.status == "COMPLETED", [(task.status, task.reason) for task in done.tasks]
    assert_published_once(world, before)
    # One that died before its first word was heard is handed out again.
    if step not in MAYBE_UNHEARD:
        assert done.tasks[0].status == "FAILED"
        assert (done.tasks[0].reason or "").startswith("the executor died with its process: code -9 at step ")
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])


@pytest.mark.parametrize("world", ["local", REAL], indirect=True)
@pytest.mark.parametrize("step", [BODY.name, PUBLISH.name, HAND_OVER.name])
def test_an_executor_that_outlives_its_host_for_a_moment_publishes_nothing_twice(
    world: WorkerWorld, step: str
) -> None:
    before = world.head().id
    # Nothing stops the executor but the end of its pipe: how far it gets is up to the machine.
    killer = SignalAt(step, signal.SIGHUP, "supervisor", world.folder / "killed")
    worker = world.start_worker(observe=killer, slots=1, TEST_ENGINE=NO_RERUN)

    done = world.finished(world.start_workflow({}))

    assert done.status == "COMPLETED", [(task.status, task.reason) for task in done.tasks]
    assert_published_once(world, before)
    assert worker.drain() == 0
    assert (world.branches(), world.outbox()) == ([], [])


@pytest.mark.parametrize("world", ["local", REAL], indirect=True)
def test_a_job_that_an_engine_reruns_is_another_execution_of_the_same_attempt(
    world: WorkerWorld,
) -> None:
    before = world.head().id
    killer = SignalAt(BODY.name, signal.SIGKILL, "supervisor", world.folder / "killed")
    worker = world.start_worker(observe=killer, slots=1, TEST_ENGINE=ONE_RERUN)

    done = world.finished(world.start_workflow({}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert_published_once(world, before)
    assert world.head().metadata["perago.execution_id"].endswith("r1")
    assert "the engine runs the attempt again" in worker.said()
    assert worker.drain() == 0
    assert (world.branches(), world.outbox()) == ([], [])


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_rerun_of_an_execution_that_had_the_claim_says_nothing_and_the_lease_ends_the_attempt(
    world: WorkerWorld,
) -> None:
    before = world.head().id
    world.response_seconds = SHORT_LEASE
    killer = SignalAt(PUBLISH.name, signal.SIGKILL, "supervisor", world.folder / "killed")
    worker = world.start_worker(observe=killer, slots=1, TEST_ENGINE=ONE_RERUN)

    done = world.finished(world.start_workflow({}))

    assert [task.status for task in done.tasks] == ["TIMED_OUT", "COMPLETED"]
    assert "LOST_TO_TWIN" in worker.said()
    assert_published_once(world, before)
    assert worker.drain() == 0
    assert (world.branches(), world.outbox()) == ([], [])


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_an_attempt_that_is_over_is_ended_though_its_body_holds_the_gil(world: WorkerWorld) -> None:
    world.response_seconds = SHORT_LEASE
    world.start_worker(slots=1, TEST_ENGINE=NO_RERUN)
    workflow_id = world.start_workflow({"do": "hold the GIL", "seconds": 600})
    body = world.body("made")
    [host, *_] = ancestors(body)

    world.terminate(workflow_id)

    eventually(lambda: not is_running(body), "the body is gone")
    # Only its executor was ended: the host takes the next attempt.
    world.finished(world.start_workflow({"text": "next"}))
    assert ancestors(int(world.bodies()[-1].split()[1]))[:1] in ([], [host])


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_no_hosted_executor_outlives_its_worker(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1, TEST_ENGINE=NO_RERUN)
    world.start_workflow({"seconds": 600})
    body = world.body("made")
    assert worker.process.pid in ancestors(body)

    worker.signal(signal.SIGKILL)

    eventually(lambda: not is_running(body), "the body is gone")


@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_second_signal_ends_hosted_bodies_and_publishes_nothing(world: WorkerWorld) -> None:
    before = world.head().id
    worker = world.start_worker(slots=1, TEST_ENGINE=NO_RERUN)
    world.start_workflow({"seconds": 600})
    body = world.body("made")

    worker.signal(signal.SIGTERM)
    eventually(lambda: "draining" in worker.said(), "it drains")
    worker.signal(signal.SIGTERM)

    assert worker.wait() == 1
    eventually(lambda: not is_running(body), "the body is gone")
    assert world.head().id == before
    assert (world.branches(), world.outbox(), world.workdirs()) == ([], [], [])
