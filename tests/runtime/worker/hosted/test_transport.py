"""The line between a host and its worker: who gets through, what is said again after a cut, and when a host gives up."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from perago.runtime.worker.executor_protocol import Began, Noted
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.protocol import Hello, Kill, Output, Unwanted, Welcome
from perago.runtime.worker.hosted.transport import PATIENCE_SECONDS, Line, LineLost, Switchboard, call
from perago.testing import Clock

JOB = "job-1"


class Worker:
    """The other end: welcomes each call, and keeps what is said on it."""

    def __init__(self, board: Switchboard) -> None:
        self.lines: SimpleQueue[HostConnection] = SimpleQueue()
        self.said: SimpleQueue[Any] = SimpleQueue()
        self.heard = 0
        board.expect(JOB, self.take)

    def take(self, line: HostConnection, _hello: Hello) -> None:
        line.send(Welcome(self.heard))
        self.lines.put(line)
        while True:
            message = line.recv()
            self.heard += isinstance(message, Began)
            self.said.put(message)


def line_to(board: Switchboard, clock: Clock | None = None) -> Line:
    clock = clock or Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    dial = partial(call, board.address, board.key)
    return Line(dial, Hello(JOB), clock=lambda: clock.now, sleep=sleep)


def test_who_does_not_have_the_key_is_not_listened_to(board: Switchboard) -> None:
    taken = threading.Event()
    board.expect(JOB, lambda line, hello: taken.set())

    with pytest.raises((OSError, EOFError)):
        call(board.address, b"another key", Hello(JOB)).recv()

    assert not taken.is_set()


def test_a_caller_who_says_nothing_holds_up_nobody(board: Switchboard) -> None:
    Worker(board)
    with socket.create_connection(board.address):
        line = line_to(board)
        line.open()
        line.close()


def test_a_job_that_nobody_waits_for_is_turned_away(board: Switchboard) -> None:
    with call(board.address, board.key, Hello("another")) as turned_away:
        assert isinstance(turned_away.recv(), Unwanted)

    with closing(line_to(board)) as line, pytest.raises(LineLost, match="does not wait for it"):
        line.open()


def test_after_a_cut_what_was_not_heard_is_said_again_and_nothing_twice(board: Switchboard) -> None:
    worker = Worker(board)
    line = line_to(board)
    line.open()
    first = worker.lines.get(timeout=10)
    line.say(Began("e", "input"))
    assert worker.said.get(timeout=10) == Began("e", "input")

    first.hang_up()
    # Nobody has heard these: the line is cut, though the sender may not know it yet.
    line.say(Began("e", "body"))
    line.say(Noted("e", "a note may be lost"))
    line.say(Began("e", "publish"))
    line.print(b"printed")
    if line.connection is not None and line.connection.poll(1):
        assert not line.is_to_die()

    heard: list[Any] = []
    while Began("e", "publish") not in heard:
        heard.append(worker.said.get(timeout=10))
    assert [one for one in heard if isinstance(one, Began)] == [Began("e", "body"), Began("e", "publish")]
    assert line.kept == (Began("e", "input"), Began("e", "body"), Began("e", "publish"))
    assert all(isinstance(one, Began | Noted | Output) for one in heard)
    line.close()


def test_the_worker_can_ask_for_the_end_of_the_executor(board: Switchboard) -> None:
    worker = Worker(board)
    line = line_to(board)
    line.open()

    worker.lines.get(timeout=10).send(Kill())

    assert line.connection is not None
    assert line.connection.poll(10)
    assert line.is_to_die()
    line.close()


def test_a_host_calls_for_a_while_where_nobody_answers(board: Switchboard) -> None:
    clock = Clock()
    began = clock.now
    board.close()

    with pytest.raises(LineLost):
        line_to(board, clock).open()

    assert clock.now - began >= PATIENCE_SECONDS
