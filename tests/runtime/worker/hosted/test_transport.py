"""The line between a host and its worker: who gets through, what is said again after a cut, and when a host gives up."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from perago.runtime.worker.executor_protocol import BodyProgress, StepStarted
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.protocol import Accepted, Connect, Kill, Output, Rejected
from perago.runtime.worker.hosted.transport import (
    PATIENCE_SECONDS,
    ConnectionLost,
    HostListener,
    WorkerConnection,
    call,
)
from perago.testing import Clock

JOB = "job-1"


class Worker:
    """The other end: welcomes each call, and keeps what is said on it."""

    def __init__(self, board: HostListener) -> None:
        self.lines: SimpleQueue[HostConnection] = SimpleQueue()
        self.said: SimpleQueue[Any] = SimpleQueue()
        self.received = 0
        board.expect(JOB, self.take)

    def take(self, line: HostConnection, _hello: Connect) -> None:
        line.send(Accepted(self.received))
        self.lines.put(line)
        while True:
            message = line.recv()
            self.received += isinstance(message, StepStarted)
            self.said.put(message)


def line_to(board: HostListener, clock: Clock | None = None) -> WorkerConnection:
    clock = clock or Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    dial = partial(call, board.address, board.key)
    return WorkerConnection(dial, Connect(JOB), clock=lambda: clock.now, sleep=sleep)


def test_a_client_without_the_key_is_ignored(board: HostListener) -> None:
    taken = threading.Event()
    board.expect(JOB, lambda line, hello: taken.set())

    with pytest.raises((OSError, EOFError)):
        call(board.address, b"another key", Connect(JOB)).recv()

    assert not taken.is_set()


def test_a_caller_who_says_nothing_holds_up_nobody(board: HostListener) -> None:
    Worker(board)
    with socket.create_connection(board.address):
        line = line_to(board)
        line.open()
        line.close()


def test_a_job_that_nobody_waits_for_is_turned_away(board: HostListener) -> None:
    with call(board.address, board.key, Connect("another")) as turned_away:
        assert isinstance(turned_away.recv(), Rejected)

    with closing(line_to(board)) as line, pytest.raises(ConnectionLost, match="no longer waits for it"):
        line.open()


def test_after_a_cut_lost_messages_are_resent_and_none_arrives_twice(board: HostListener) -> None:
    worker = Worker(board)
    line = line_to(board)
    line.open()
    first = worker.lines.get(timeout=10)
    line.send(StepStarted("e", "input"))
    assert worker.said.get(timeout=10) == StepStarted("e", "input")

    first.disconnect()
    # These are lost: the connection is cut, though the sender may not know it yet.
    line.send(StepStarted("e", "body"))
    line.send(BodyProgress("e", "a note may be lost"))
    line.send(StepStarted("e", "publish"))
    line.send_output(b"printed")
    if line.connection is not None and line.connection.poll(1):
        assert not line.received_kill()

    received: list[Any] = []
    while StepStarted("e", "publish") not in received:
        received.append(worker.said.get(timeout=10))
    assert [one for one in received if isinstance(one, StepStarted)] == [
        StepStarted("e", "body"),
        StepStarted("e", "publish"),
    ]
    assert line.kept == (StepStarted("e", "input"), StepStarted("e", "body"), StepStarted("e", "publish"))
    assert all(isinstance(one, StepStarted | BodyProgress | Output) for one in received)
    line.close()


def test_the_worker_can_ask_for_the_end_of_the_executor(board: HostListener) -> None:
    worker = Worker(board)
    line = line_to(board)
    line.open()

    worker.lines.get(timeout=10).send(Kill())

    assert line.connection is not None
    assert line.connection.poll(10)
    assert line.received_kill()
    line.close()


def test_a_host_calls_for_a_while_where_nobody_answers(board: HostListener) -> None:
    clock = Clock()
    began = clock.now
    board.close()

    with pytest.raises(ConnectionLost):
        line_to(board, clock).open()

    assert clock.now - began >= PATIENCE_SECONDS
