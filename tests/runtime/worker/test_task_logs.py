"""Printed lines on their way to the orchestrator's task log."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from perago.errors import OrchestratorUnavailable
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import AttemptRecord, parse_record, record_line
from perago.runtime.observe.events import Event
from perago.runtime.worker.task_logs import BATCH_LINES, TaskLogs
from tests.support.worlds.clock import eventually
from tests.support.worlds.inboxes import HandledAtOnce

PATIENCE = 10.0
RECORD = record_line(AttemptRecord("e1", "COMPLETED"))


def attempt(task_id: str) -> Attempt:
    return Attempt("wf", task_id, "ref", "clean", retry_count=0, seq=1, iteration=0)


class Server:
    """Takes lines; `closed` makes it wait, `broken` makes it refuse."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.calls = 0
        self.open = threading.Event()
        self.open.set()
        self.called = threading.Event()
        self.broken: list[Exception] = []

    def log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        self.called.set()
        self.open.wait(PATIENCE)
        self.calls += 1
        if self.broken:
            raise self.broken.pop()
        self.lines.setdefault(attempt.task_id, []).extend(lines)


def test_remaining_lines_are_sent_when_an_execution_is_done() -> None:
    server = Server()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        logs.begin("e2", attempt("t2"))
        logs.add("e1", "one")
        logs.add("e2", "other")
        logs.add("e1", "two")
        assert logs.finish("e1", timeout=PATIENCE) is True

    assert server.lines == {"t1": ["one", "two"], "t2": ["other"]}


def test_lines_are_sent_while_the_body_still_runs() -> None:
    server = Server()

    with TaskLogs(server.log, interval=0.01) as logs:
        logs.begin("e1", attempt("t1"))
        logs.add("e1", "so far")

        assert server.called.wait(PATIENCE)


def test_many_lines_go_in_few_calls() -> None:
    server = Server()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        for number in range(BATCH_LINES + 1):
            logs.add("e1", str(number))
        logs.finish("e1", timeout=PATIENCE)

    assert server.calls == 2
    assert server.lines["t1"] == [str(number) for number in range(BATCH_LINES + 1)]


def test_adding_lines_does_not_wait_for_a_slow_server() -> None:
    server = Server()
    server.open.clear()

    with TaskLogs(server.log, interval=0.01) as logs:
        logs.begin("e1", attempt("t1"))
        logs.add("e1", "one")
        assert server.called.wait(PATIENCE)
        # While the server holds the first call:
        logs.add("e1", "two")
        assert logs.finish("e1") is False
        server.open.set()

    assert server.lines == {"t1": ["one", "two"]}


@pytest.mark.parametrize("error", [OrchestratorUnavailable("away"), RuntimeError("a bug")])
def test_lines_that_cannot_be_sent_are_dropped_and_said(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.broken.append(error)

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        logs.add("e1", "lost")
        assert logs.finish("e1", timeout=PATIENCE) is True
        logs.begin("e2", attempt("t2"))
        logs.add("e2", "kept")
        assert logs.finish("e2", timeout=PATIENCE) is True

    assert server.lines == {"t2": ["kept"]}
    assert f"1 lines of output of task t1 were not sent: {error}" in caplog.text


def test_lines_of_nobody_are_not_sent() -> None:
    server = Server()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.add("", "printed at import")
        logs.begin("e1", attempt("t1"))
        assert logs.finish("e1", timeout=PATIENCE) is True
        logs.add("e1", "too late")
        assert logs.finish("e1") is True

    assert server.calls == 0


def test_the_record_is_the_last_line_and_goes_by_itself() -> None:
    server = Server()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        logs.add("e1", "printed")
        logs.finish("e1", record=RECORD, timeout=PATIENCE)
        logs.finish("e1")

    assert server.lines == {"t1": ["printed", RECORD]}
    assert server.calls == 2


def test_a_body_that_prints_all_the_time_holds_up_no_record() -> None:
    server = Server()

    def log_and_print(attempt: Attempt, lines: Sequence[str]) -> None:
        server.log(attempt, lines)
        # The body of the other one has printed again by the time that its lines were sent.
        if "t1" not in server.lines and server.calls < 100:
            logs.add("e2", "again")

    logs = TaskLogs(log_and_print, interval=0.01)
    with logs:
        logs.begin("e1", attempt("t1"))
        logs.begin("e2", attempt("t2"))
        logs.add("e2", "again")
        logs.finish("e1", record=RECORD)
        eventually(lambda: "t1" in server.lines, "the record is sent")

    assert server.lines["t1"] == [RECORD]
    assert server.calls < 10


def test_adding_a_record_does_not_wait_for_the_server() -> None:
    server = Server()
    server.open.clear()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        assert logs.finish("e1", record=RECORD) is True
        assert server.called.wait(PATIENCE)
        # While the server holds the record, one that has printed nothing ends too.
        logs.begin("e2", attempt("t2"))
        assert logs.finish("e2", record=RECORD) is True
        server.open.set()

    assert server.lines == {"t1": [RECORD], "t2": [RECORD]}


def test_closing_waits_for_a_dead_server_once_and_not_for_each_record() -> None:
    server = Server()
    server.open.clear()

    with TaskLogs(server.log, interval=3600) as logs:
        for number in range(5):
            logs.begin(f"e{number}", attempt(f"t{number}"))
            logs.finish(f"e{number}", record=RECORD)
        assert server.called.wait(PATIENCE)
        server.broken += [OrchestratorUnavailable("away")] * 5
        # The first call is held until closing has begun.
        leaving = threading.Thread(
            target=lambda: eventually(lambda: logs._stopped, "left") and server.open.set()
        )
        leaving.start()
    leaving.join()

    assert server.calls == 1


@pytest.mark.parametrize("before", ["", "x\r", "x\u2028", "x\x85"])
def test_a_body_cannot_print_a_record(before: str) -> None:
    server = Server()

    with TaskLogs(server.log, interval=3600) as logs:
        logs.begin("e1", attempt("t1"))
        logs.add("e1", before + RECORD)
        logs.finish("e1", timeout=PATIENCE)

    (line,) = server.lines["t1"]
    assert [parse_record(part) for part in line.splitlines()] == [None] * len(line.splitlines())
    assert line == f"{before} {RECORD}"


def test_a_listener_gets_each_line_of_an_execution_and_its_record_at_once() -> None:
    server, seen = Server(), list[tuple[str, str, str]]()

    def handle(event: Event) -> None:
        assert event.kind == "printed"
        assert event.attempt is not None
        seen.append((event.execution_id, event.attempt.task_id, event.text))

    logs = TaskLogs(server.log, inbox=HandledAtOnce(handle))
    logs.begin("e1", attempt("t1"))
    logs.add("e1", "one")
    logs.add("nobody", "lost")
    logs.finish("e1", record=RECORD)
    logs.finish("e1", record=RECORD)

    assert seen == [("e1", "t1", "one"), ("e1", "t1", RECORD)]
    assert server.calls == 0
