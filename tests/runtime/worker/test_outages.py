"""A Conductor that is paused, or restarted, under a worker; and a worker that runs for long."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perago.protocol.steps import HAND_OVER
from tests.conftest import ConductorServer, OwnServers
from tests.support.faults.observers import PauseAt
from tests.support.servers.scripted_server import NGINX, Answer, Request, scripted
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import WorkerWorld

REAL_ONLY = pytest.mark.parametrize(
    "world", [pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow])], indirect=True
)
ON_OWN_SERVERS = pytest.mark.parametrize(
    "world", [pytest.param("own", marks=pytest.mark.slow)], indirect=True
)
BOTH = pytest.mark.parametrize(
    "world",
    [
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow]),
    ],
    indirect=True,
)

# A lease that does not end on a busy machine.  Conductor evaluates a workflow again when its task's lease would end, so it
# sees before a test gives up what it overlooked while it was paused or restarted.
LEASE = 100


@contextmanager
def paused(server: ConductorServer) -> Iterator[None]:
    """Stop Conductor's process while the block runs."""
    assert server.state_folder is not None, "PERAGO_DEV_SERVERS tells where the servers' pids are"
    pid = int((server.state_folder / "conductor.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@ON_OWN_SERVERS
def test_a_result_that_conductor_did_not_hear_is_sent_by_the_next_worker(
    world: WorkerWorld, own_servers: OwnServers
) -> None:
    """Conductor is paused after the merge, the worker is killed and started again, Conductor resumes."""
    before = world.head().id
    world.response_seconds = LEASE
    go_on = world.folder / "go-on"
    first = world.start_worker(observe=PauseAt(HAND_OVER.name, world.folder / "merged", go_on))
    workflow_id = world.start_workflow({})
    eventually((world.folder / "merged").exists, "the merge is done")
    with paused(own_servers.conductor):
        go_on.touch()
        eventually(world.stored_results, "the result is in the outbox")
        first.signal(signal.SIGKILL)
        first.wait()
        world.start_worker()
        time.sleep(2)

    done = world.finished(workflow_id)

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
    assert len(world.bodies()) == 1
    assert [commit.id for commit in world.history()[:2]] == [done.output["ref"], before]
    eventually(lambda: world.outbox() == [] and world.branches() == [], "nothing is left behind")


@ON_OWN_SERVERS
def test_a_worker_recovers_by_itself_when_conductor_is_restarted(
    world: WorkerWorld, own_servers: OwnServers
) -> None:
    world.response_seconds = LEASE
    worker = world.start_worker()
    running = world.start_workflow({"seconds": 5, "text": "running"})
    eventually(world.bodies, "the body runs")

    own_servers.restart_conductor()

    assert world.finished(running).status == "COMPLETED"
    assert world.finished(world.start_workflow({"text": "after"})).status == "COMPLETED"
    assert worker.drain() == 0
    assert len(world.bodies()) == 2


@REAL_ONLY
def test_a_proxy_that_answers_404_for_conductor_costs_no_attempt_and_no_result(
    world: WorkerWorld, conductor_server: ConductorServer
) -> None:
    """Run one attempt and end another while the proxy alone answers every call; leases are long enough."""
    world.response_seconds = 20
    away = threading.Event()

    def answer(request: Request) -> Answer:
        return (
            (404, NGINX.format("404 Not Found")) if away.is_set() else forward(conductor_server.url, request)
        )

    with scripted(answer) as proxy:
        worker = world.start_worker(CONDUCTOR_SERVER_URL=proxy.url)
        world.lake.create_branch(world.repository, "other", world.head().id, hidden=False)
        ending = world.start_workflow(
            {"text": "ending", "wait_for": str(world.folder / "end")}, branch="other"
        )
        running = world.start_workflow({"text": "running", "wait_for": str(world.folder / "run")})
        eventually(lambda: len(world.bodies()) == 2, "both bodies run")
        away.set()
        (world.folder / "end").touch()
        # A beat comes at a third of the response time-out: two of them find the proxy.
        eventually(lambda: worker.said().count("was not extended") >= 3, "leases are not extended")
        away.clear()
        (world.folder / "run").touch()

        done = [world.finished(ending), world.finished(running)]

        assert [(task.status, task.retry_count) for one in done for task in one.tasks] == [
            ("COMPLETED", 0)
        ] * 2
        assert len(world.bodies()) == 2
        assert worker.drain() == 0
        assert world.outbox() == []


def forward(url: str, request: Request) -> Answer:
    """Return the server's answer to the request."""
    kind = "text/plain" if request.path.endswith("/log") else "application/json"
    query = f"?{urllib.parse.urlencode(request.query)}" if request.query else ""
    call = urllib.request.Request(
        f"{url}{request.path}{query}",
        method=request.method,
        data=request.body.encode() or None,
        headers={"Content-Type": kind},
    )
    try:
        with urllib.request.urlopen(call) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@BOTH
def test_200_workflows_on_one_worker_are_all_right_and_its_memory_stays_level(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=2)
    eventually(lambda: len(worker.executors()) == 2, "the executors run")

    run_workflows(world, range(60))
    early = memory_of(worker.process.pid, *worker.executors())
    run_workflows(world, range(60, 200))
    late = memory_of(worker.process.pid, *worker.executors())

    assert len(world.bodies()) == 200
    assert late - early < 16 * 1024, f"{early} KB after 60 workflows, {late} KB after 200"
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])


def run_workflows(world: WorkerWorld, numbers: range) -> None:
    """Run a workflow for each number, each on its own branch, all at once; each must publish its file."""
    head = world.head().id
    for number in numbers:
        world.lake.create_branch(world.repository, f"work-{number}", head, hidden=False)
    ids = {
        number: world.start_workflow({"text": f"t{number}"}, branch=f"work-{number}") for number in numbers
    }
    for number, workflow_id in ids.items():
        done = world.finished(workflow_id)
        assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)]
        made = world.lake.head(world.repository, f"work-{number}")
        assert (made.id, made.first_parent) == (done.output["ref"], head)


def memory_of(*pids: int) -> int:
    """Return the private memory of the processes, in KB."""
    return sum(
        int(line.split()[1])
        for pid in pids
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Private_Dirty:")
    )
