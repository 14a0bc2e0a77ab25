"""A host and its executor: what the executor had said when it was ended is not lost."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.worker.executor_protocol import Answer, Cleaned, Ended, Run, StepStarted
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.host import HostedExecutor, HostSession
from perago.runtime.worker.hosted.protocol import Accepted, Connect, Kill
from perago.runtime.worker.hosted.transport import HostListener, WorkerConnection, call
from perago.runtime.worker.local_executor import death_of
from perago.testing import Clock
from tests.support.servers.scripted_orchestrator import an_assignment
from tests.support.worlds.clock import eventually

SAID = (StepStarted("e", "claim"), StepStarted("e", "publish"))
ENDED = Ended("e", ExecutionResult(Outcome("COMPLETED")))


def speak(pipe: Connection, said: Path, answers: tuple[Answer, ...]) -> None:
    """An executor process that takes an attempt, says this, and does not end by itself."""
    pipe.recv()
    for answer in answers:
        pipe.send(answer)
    said.touch()
    time.sleep(600)


def an_executor(folder: Path, *answers: Answer) -> HostedExecutor:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process: Any = spawn.Process(target=speak, args=(theirs, folder / "said", answers))
    process.start()
    theirs.close()
    output, write = os.pipe()
    os.close(write)
    os.set_blocking(output, False)
    return HostedExecutor(process, ours, output, death_of(process), folder, ready=True)


def a_line(board: HostListener) -> WorkerConnection:
    """Return a connection that gives up without waiting."""
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    dial = partial(call, board.address, board.key)
    return WorkerConnection(dial, Connect("job"), clock=lambda: clock.now, sleep=sleep)


def test_messages_sent_before_a_kill_show_the_executors_last_step(
    board: HostListener, tmp_path: Path
) -> None:
    def kill(line: HostConnection, _hello: Connect) -> None:
        line.send(Accepted(0))
        line.send(Kill())
        line.recv()

    board.expect("job", kill)
    executor = an_executor(tmp_path, *SAID)
    with closing(a_line(board)) as line:
        line.open()
        session = HostSession(executor, line, Run("e", an_assignment()))
        session._begin()
        # Both are there before the host looks: the order to kill, and what the executor has said.
        assert line.connection is not None
        assert line.connection.poll(30)
        eventually((tmp_path / "said").exists, "it has said all")
        executor.ready = False

        assert session.until_over() == "signal SIGKILL"
        assert line.kept == SAID


def test_without_a_line_it_is_ended_and_what_it_said_comes_with_the_job(
    board: HostListener, tmp_path: Path
) -> None:
    def hang_up_for_good(line: HostConnection, _hello: Connect) -> None:
        line.send(Accepted(0))
        board.close()

    board.expect("job", hang_up_for_good)
    executor = an_executor(tmp_path, *SAID)
    with closing(a_line(board)) as line:
        line.open()
        how = HostSession(executor, line, Run("e", an_assignment())).until_over()

        assert how.startswith("a lost connection to its worker: ")
        assert not executor.process.is_alive()


def test_without_a_connection_an_execution_with_a_result_may_clean_up(
    board: HostListener, tmp_path: Path
) -> None:
    def hang_up_after_the_ending(line: HostConnection, _hello: Connect) -> None:
        line.send(Accepted(0))
        assert line.recv() == ENDED
        board.close()

    board.expect("job", hang_up_after_the_ending)
    executor = an_executor(tmp_path, ENDED, *[StepStarted("e", "cleanup")] * 50, Cleaned("e"))
    with closing(a_line(board)) as line:
        line.open()

        assert HostSession(executor, line, Run("e", an_assignment())).until_over() == ""
        assert line.kept[0] == ENDED
        assert line.kept[-1] == Cleaned("e")
        assert executor.process.is_alive()
        executor.end()
