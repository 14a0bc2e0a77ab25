"""Executors are forked from their worker's fork server, and do not depend on it once they run."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perago.backend import Embedded
from perago.runtime.process.process_setup import may_fork
from perago.runtime.worker import fork_server
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.fork_server import ForkServer, ForkServerGone
from perago.settings import load_settings
from tests.support.processes.processes import ancestors, descendants, is_running, name_of
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Worker, WorkerWorld


def fork_server_of(worker: Worker) -> int:
    [found] = [pid for pid in descendants(worker.process.pid) if name_of(pid) == "perago-template"]
    return found


@pytest.mark.slow
def test_executors_are_forked_from_the_fork_server_and_exit_like_any_python(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=2)
    world.finished(world.start_workflow({"do": "register an exit", "text": "first"}))
    executors = worker.executors()

    assert len(executors) == 2
    assert [ancestors(pid)[:2] for pid in executors] == [[fork_server_of(worker), worker.process.pid]] * 2
    assert worker.drain() == 0
    body, exit_ = world.bodies()
    assert body.replace("body", "exit") == exit_


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_a_body_sees_its_process_as_a_spawned_one(world: WorkerWorld) -> None:
    """A pool that forked an executor with all its threads could hang; libraries ask whether they are in a main process."""
    world.start_worker(slots=1)

    world.finished(world.start_workflow({"do": "look at multiprocessing"}))

    assert world.bodies()[1:] == ["perago-executor-0 spawn True True"]


@pytest.mark.slow
def test_a_worker_without_its_fork_server_finishes_running_attempts_and_continues(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1)
    go_on = world.folder / "go-on"
    first = world.start_workflow({"wait_for": str(go_on), "text": "first"})
    before = world.body("first")

    os.kill(fork_server_of(worker), signal.SIGKILL)
    eventually(lambda: ancestors(before)[:1] != [worker.process.pid], "the fork server is gone")
    go_on.touch()

    assert world.finished(first).status == "COMPLETED"
    second = world.start_workflow({"wait_for": str(world.folder / "killed"), "text": "second"})
    os.kill(world.body("second"), signal.SIGKILL)
    (world.folder / "killed").touch()
    died, done = world.finished(second).tasks
    assert (died.status, done.status) == ("FAILED", "COMPLETED")
    assert f"exit code {ForkServer.NOT_KNOWN}" in died.reason
    assert "is started without the fork server" in worker.said()
    assert worker.drain() == 0


@pytest.mark.slow
def test_a_killed_worker_leaves_neither_fork_server_nor_executors(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=2)
    world.finished(world.start_workflow({}))
    below = descendants(worker.process.pid)

    worker.signal(signal.SIGKILL)
    worker.wait()

    eventually(lambda: not any(map(is_running, below)), "all that it started is gone")


@pytest.mark.slow
def test_shared_memory_of_a_killed_executor_is_freed_with_the_worker(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1)
    world.finished(world.start_workflow({"do": "leave shared memory"}))
    [executor] = worker.executors()
    [left] = [line.split()[1] for line in world.bodies() if line.startswith("shared ")]
    [tracker] = [pid for pid in descendants(worker.process.pid) if name_of(pid) == "perago-tracker"]
    assert ancestors(tracker)[:1] == [fork_server_of(worker)]
    assert Path("/dev/shm", left).exists()

    os.kill(executor, signal.SIGKILL)
    assert worker.drain() == 0

    eventually(lambda: not Path("/dev/shm", left).exists(), "the tracker has removed it")
    eventually(lambda: not is_running(tracker), "and has ended")


@pytest.mark.slow
def test_a_signal_to_the_whole_group_ends_the_worker_and_nothing_before_it(world: WorkerWorld) -> None:
    """As a terminal's Ctrl-C does, or a service manager: the attempt in flight is finished."""
    worker = world.start_worker(slots=1)
    go_on = world.folder / "go-on"
    workflow_id = world.start_workflow({"wait_for": str(go_on), "text": "first"})
    world.body("first")

    for process in [worker.process.pid, *descendants(worker.process.pid)]:
        os.kill(process, signal.SIGTERM)
    eventually(lambda: "draining" in worker.said(), "the worker drains")
    go_on.touch()

    assert worker.wait() == 0
    assert world.finished(workflow_id).status == "COMPLETED"


def test_a_process_that_is_not_ours_is_never_forked() -> None:
    brought: list[str] = []

    fork_server.prepare(lambda: brought.append("everything"))

    assert not may_fork()
    assert (brought, fork_server.current_fork_server()) == ([], None)


@pytest.mark.parametrize(
    "thread",
    ["import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", ""],
    ids=["with a thread", "without one"],
)
def test_a_program_is_forked_only_while_it_has_one_thread(thread: str) -> None:
    lines = [
        "from perago.runtime.process.process_setup import mark_main_program",
        "from perago.runtime.worker import fork_server",
        "mark_main_program()",
        f"fork_server.prepare(lambda: exec({thread!r}))",
        "print(fork_server.current_fork_server() is not None, end='')",
    ]

    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )

    assert done.stdout == str(not thread)


Answering = Callable[[socket.socket], None]


@pytest.fixture
def answered_by(tmp_path: Path) -> Iterator[Callable[[Answering], ForkServer]]:
    """A worker's end of a line, at whose other end a function answers."""
    opened: list[socket.socket] = []

    def make(answer: Answering) -> ForkServer:
        ours, theirs = socket.socketpair()
        opened.extend((ours, theirs))
        threading.Thread(target=answer, args=(theirs,), daemon=True).start()
        return ForkServer(ours)

    yield make
    for one in opened:
        one.close()


def a_spec(folder: Path) -> ExecutorSpec:
    return ExecutorSpec(Embedded(load_settings({}, root=folder)), ("tasks.py",), ("one",))


def begin(server: ForkServer, folder: Path) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe, open(writing, "wb") as output:
        server.begin(a_spec(folder), 1, pipe, output.fileno())  # type: ignore[arg-type]


def test_a_machine_without_room_for_a_process_is_reported_as_such(
    answered_by: Callable[[Answering], ForkServer], tmp_path: Path
) -> None:
    def no_room(theirs: socket.socket) -> None:
        theirs.recv(65536)
        said = pickle.dumps((errno.EAGAIN, "no room"))
        theirs.sendall(fork_server._HEADER.pack(fork_server._FAILED, len(said)) + said)

    with pytest.raises(BlockingIOError, match="no room"):
        begin(answered_by(no_room), tmp_path)


def test_a_fork_server_that_closes_its_connection_is_not_asked_again(
    answered_by: Callable[[Answering], ForkServer], tmp_path: Path
) -> None:
    def disconnect(theirs: socket.socket) -> None:
        theirs.recv(65536)
        theirs.close()

    asked = answered_by(disconnect)
    for _ in range(2):
        with pytest.raises(ForkServerGone):
            begin(asked, tmp_path)
    assert asked.exit_code_of(os.getpid()) == ForkServer.NOT_KNOWN


def test_a_fork_server_that_does_not_answer_in_time_counts_as_gone(
    answered_by: Callable[[Answering], ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "ANSWER_SECONDS", 0.05)
    with pytest.raises(ForkServerGone, match="does not answer: timed out"):
        begin(answered_by(lambda _theirs: None), tmp_path)
