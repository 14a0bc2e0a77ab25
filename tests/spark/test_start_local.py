"""`perago start --engine spark` on a local master with the embedded servers: one worker for all kinds of tasks."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.orchestrator.base import WorkflowState
from perago.protocol.attempt_record import parse_record
from realservers.state import free_ports
from tests.support.processes.processes import ancestors, command, descendants, is_running
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Worker, WorkerWorld, open_worker_world

MASTER = "local[2]"
LEASE = 15
"""Seconds; a stale attempt is noticed after a third of them."""


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerWorld]:
    with open_worker_world(request, "local", tmp_path_factory.mktemp("start")) as made:
        made.response_seconds = LEASE
        yield made


@pytest.fixture(scope="module")
def port() -> int:
    """Return the port on which the worker listens for its hosts."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def worker(world: WorkerWorld, port: int) -> Worker:
    return world.start_worker(
        TEST_ENGINE="spark",
        TEST_TASKS="mixed_steps.py",
        PERAGO_SPARK_MASTER=MASTER,
        PERAGO_SPARK_SESSION="quick",
        PERAGO_SPARK_CONF=f"spark.perago.port={port}",
    )


@pytest.fixture
def branch(world: WorkerWorld, request: pytest.FixtureRequest) -> str:
    """A branch of the test's own."""
    name = request.node.name[:60]
    world.lake.create_branch(world.repository, name, world.head().id)
    return name


def statuses(done: WorkflowState) -> list[str]:
    return [task.status for task in done.tasks]


def test_attempts_run_at_once_in_processes_below_sparks_own_and_one_commit_comes_of_each(
    world: WorkerWorld, worker: Worker, port: int
) -> None:
    world.registered()
    go = world.folder / "go"
    names = ["one", "two"]
    for name in names:
        world.lake.create_branch(world.repository, name, world.head().id)

    started = [
        world.start_workflow({"text": name, "do": "print", "wait_for": str(go)}, branch=name)
        for name in names
    ]
    inside = eventually(
        lambda: len(world.bodies()) == len(names) and world.bodies(), "both bodies are in flight"
    )
    below = [ancestors(int(line.split()[1])) for line in inside]
    # It listens where it is configured to, and an unknown client does not disturb it.
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        go.touch()
    done = [world.finished(one) for one in started]

    assert [statuses(one) for one in done] == [["COMPLETED"]] * 2
    for name, one in zip(names, done, strict=True):
        commits = list(world.lake.log(world.repository, name, 9))
        assert commits[0].id == one.tasks[0].output["workspace"]["ref"]
        assert commits[0].first_parent == world.head().id
        lines = world.task_log(one.tasks[0].task_id)
        assert {"printed past Python", f"printed by the body {name}"} <= set(lines)
        assert parse_record(lines[-1]) is not None
    # Not the worker's own children: each has a Python process of Spark's between.
    assert all(
        "perago.spark.python_daemon" in command(pids[0]) and worker.process.pid in pids for pids in below
    )
    assert world.branches() == []


def test_a_body_that_fails_is_told_with_its_reason_and_traceback(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    done = world.finished(world.start_workflow({"do": "fail"}, branch=branch))

    assert statuses(done) == ["FAILED"] * 6
    assert (done.tasks[0].reason or "").startswith("ValueError: as asked")
    lines = world.task_log(done.tasks[0].task_id)
    assert any("in act" in line for line in lines), lines
    assert "died" not in worker.said()


def test_a_body_that_ends_its_process_fails_and_the_retry_completes(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    done = world.finished(world.start_workflow({"text": "again", "do": "leave once"}, branch=branch))

    assert statuses(done) == ["FAILED", "COMPLETED"]
    assert done.tasks[0].reason == "the executor died with exit code 7 at step 'body'"
    assert world.branches() == []
    assert world.lake.head(world.repository, branch).first_parent == world.head().id


def test_an_attempt_that_is_over_is_stopped_and_publishes_nothing(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    workflow_id = world.start_workflow(
        {"text": "stale", "wait_for": str(world.folder / "never")}, branch=branch
    )
    body = world.body("stale")

    world.terminate(workflow_id)

    eventually(lambda: not is_running(body), "the body's process is gone")
    eventually(lambda: "is over" in worker.said(), "the worker has said so")
    assert world.lake.head(world.repository, branch).id == world.head().id
    eventually(lambda: world.branches() == [], "nothing is left of it")


def test_a_spark_task_runs_in_a_process_of_the_same_worker(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    done = world.finished(world.start_workflow({"text": "first"}, {"rows": 3}, branch=branch))

    assert statuses(done) == ["COMPLETED"] * 2, [task.reason for task in done.tasks]
    # Its own session, not that of the engine, whose tasks Spark gives up at once.
    assert done.tasks[1].output["result"]["said"] == MASTER
    assert any(
        entry.path.startswith("data/numbers/part-") for entry in world.lake.list(world.repository, branch, "")
    )


def test_a_dead_jvm_costs_the_attempts_in_flight_one_try_and_a_new_one_takes_its_place(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    go = world.folder / "go-on"
    workflow_id = world.start_workflow({"text": "after", "wait_for": str(go)}, branch=branch)
    body = world.body("after")
    [jvm] = [pid for pid in ancestors(body) if "org.apache.spark.deploy.SparkSubmit" in command(pid)]

    os.kill(jvm, signal.SIGKILL)
    eventually(lambda: not is_running(body), "the body has gone with its JVM")
    go.touch()
    done = world.finished(workflow_id)

    assert statuses(done) == ["FAILED", "COMPLETED"]
    assert "JVM is gone" in (done.tasks[0].reason or "")
    assert world.lake.head(world.repository, branch).first_parent == world.head().id
    eventually(lambda: world.branches() == [], "nothing is left of it")


def test_a_drain_finishes_what_is_in_flight_and_leaves_no_process(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    go = world.folder / "last"
    workflow_id = world.start_workflow({"text": "last", "wait_for": str(go)}, branch=branch)
    world.body("last")
    below = descendants(worker.process.pid)

    worker.signal(signal.SIGTERM)
    eventually(lambda: "draining" in worker.said(), "it drains")
    go.touch()

    assert worker.wait() == 0, worker.said()
    assert statuses(world.workflow(workflow_id)) == ["COMPLETED"]
    assert (world.branches(), world.outbox(), world.workdirs()) == ([], [], [])
    eventually(lambda: not any(map(is_running, below)), "every process below it is gone")
    assert list(Path(world.root, "spark").glob("*/blockmgr-*/perago-work/*")) == []
