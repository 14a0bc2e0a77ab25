"""`perago start --engine spark` on a standalone cluster with real lakeFS and Conductor, and what may happen to it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from perago.orchestrator.base import WorkflowState
from realservers.state import free_ports
from tests.conftest import LakefsServer
from tests.spark.conftest import on_cluster
from tests.support.processes.processes import ancestors, command, is_running
from tests.support.worlds.clock import eventually
from tests.support.worlds.spark_world import shown_by_spark
from tests.support.worlds.worker_world import Worker, WorkerWorld, open_worker_world

LEASE = 15
"""Seconds: two tests wait until one has ended, and no busy machine lets the others run out."""


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerWorld]:
    with open_worker_world(request, "real", tmp_path_factory.mktemp("cluster")) as made:
        made.response_seconds = LEASE
        (made.folder / "events").mkdir()
        yield made


def start_worker(world: WorkerWorld, master: str, ui: int = 0, cores: int = 2) -> Worker:
    """A worker on the cluster; what its bodies need of the environment goes to the executors by Spark's configuration."""
    tests = {
        "SUFFIX": world.suffix,
        "NOTES": str(world.notes),
        "RESPONSE_SECONDS": str(world.response_seconds),
    }
    conf = {
        "spark.executor.memory": "512m",
        "spark.cores.max": str(cores),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (world.folder / "events").as_uri(),
        **({"spark.ui.enabled": "true", "spark.ui.port": str(ui)} if ui else {}),
        **{f"spark.executorEnv.TEST_{name}": value for name, value in tests.items()},
    }
    return world.start_worker(
        TEST_ENGINE="spark",
        TEST_TASKS="mixed_steps.py",
        PERAGO_SPARK_MASTER=master,
        PERAGO_SPARK_CONF=on_cluster(conf),
        PYSPARK_PYTHON=sys.executable,
    )


@pytest.fixture(scope="module")
def ui() -> int:
    """The port of Spark's page."""
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def worker(world: WorkerWorld, master: str, ui: int) -> Worker:
    return start_worker(world, master, ui)


@pytest.fixture
def branch(world: WorkerWorld, request: pytest.FixtureRequest) -> str:
    """A branch of the test's own."""
    name = request.node.name[:60]
    world.lake.create_branch(world.repository, name, world.head().id)
    return name


def statuses(done: WorkflowState) -> list[str]:
    return [task.status for task in done.tasks]


def executor_of(body: int) -> int:
    """The Spark executor that a body runs below."""
    [found] = [pid for pid in ancestors(body) if "CoarseGrainedExecutorBackend" in command(pid)]
    return found


def assert_one_commit(world: WorkerWorld, branch: str, done: WorkflowState) -> None:
    head = world.lake.head(world.repository, branch)
    assert head.id == done.tasks[-1].output["workspace"]["ref"]
    assert head.first_parent == world.head().id
    eventually(lambda: world.branches() == [], "no staging and no claim is left")


def test_workflows_run_at_once_on_both_machines_and_keys_are_nowhere_to_be_seen(
    world: WorkerWorld, worker: Worker, ui: int, lakefs_server: LakefsServer
) -> None:
    world.registered()
    go = world.folder / "go"
    names = ["one", "two", "three"]
    for name in names:
        world.lake.create_branch(world.repository, name, world.head().id)

    started = [
        world.start_workflow({"text": name, "do": "print", "wait_for": str(go)}, branch=name)
        for name in names
    ]
    inside = eventually(
        lambda: len(world.bodies()) == 2 and world.bodies(), "a body is in flight on each machine"
    )
    executors = {executor_of(int(line.split()[1])) for line in inside}
    shown = shown_by_spark(ui)
    go.touch()
    done = [world.finished(one) for one in started]

    assert len(executors) == 2
    assert [statuses(one) for one in done] == [["COMPLETED"]] * 3
    for name, one in zip(names, done, strict=True):
        assert_one_commit(world, name, one)
        assert f"printed by the body {name}" in world.task_log(one.tasks[0].task_id)
    shown += "".join(file.read_text() for file in (world.folder / "events").rglob("*") if file.is_file())
    # The page and the log are there, and show what was configured.
    assert shown.count("spark.eventLog.dir") >= 2
    assert lakefs_server.secret_access_key not in shown + worker.said()


def test_a_body_that_fails_is_told_with_its_reason_and_traceback(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    workflow_id = world.start_workflow({"do": "fail"}, branch=branch)

    def failed() -> list[object]:
        return [task for task in world.workflow(workflow_id).tasks if task.status == "FAILED"]

    first = eventually(failed, "a failure")[0]
    world.terminate(workflow_id)
    assert first.reason.startswith("ValueError: as asked")
    assert any("in act" in line for line in world.task_log(first.task_id))
    assert world.lake.head(world.repository, branch).id == world.head().id


def test_an_attempt_that_is_over_is_stopped_and_publishes_nothing(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    workflow_id = world.start_workflow(
        {"text": "stale", "wait_for": str(world.folder / "never")}, branch=branch
    )
    body = world.body("stale")

    world.terminate(workflow_id)

    eventually(lambda: not is_running(body), "the body's process is gone")
    eventually(lambda: world.branches() == [], "nothing is left of it")
    assert world.lake.head(world.repository, branch).id == world.head().id
    assert statuses(world.workflow(workflow_id)) == ["CANCELED"]


def test_a_spark_executor_killed_inside_a_body_costs_one_try(
    world: WorkerWorld, worker: Worker, branch: str
) -> None:
    go = world.folder / "go-on"
    workflow_id = world.start_workflow({"text": "again", "wait_for": str(go)}, branch=branch)
    body = world.body("again")

    os.kill(executor_of(body), signal.SIGKILL)
    eventually(lambda: not is_running(body), "the body has gone with its executor")
    go.touch()
    done = world.finished(workflow_id)

    assert statuses(done) == ["FAILED", "COMPLETED"]
    assert (done.tasks[0].reason or "").startswith("the executor died with its Spark executor: ")
    assert_one_commit(world, branch, done)


def test_after_the_worker_is_killed_its_body_ends_and_the_next_worker_finishes_the_attempt(
    world: WorkerWorld, worker: Worker, master: str, branch: str
) -> None:
    go = world.folder / "go-further"
    workflow_id = world.start_workflow({"text": "after", "wait_for": str(go)}, branch=branch)
    body = world.body("after")

    worker.signal(signal.SIGKILL)
    worker.wait()
    eventually(lambda: not is_running(body), "the body has gone with its driver")
    go.touch()
    second = start_worker(world, master, cores=1)
    done = world.finished(workflow_id)

    # The lease ran out, or the next worker reported the attempt of the dead one.
    assert statuses(done) in (["TIMED_OUT", "COMPLETED"], ["FAILED", "COMPLETED"])
    assert_one_commit(world, branch, done)
    assert second.drain() == 0
    assert (world.branches(), world.workdirs(), world.outbox()) == ([], [], [])
