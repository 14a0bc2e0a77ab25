"""run.log: what goes into it, and how it looks."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import replace

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import AttemptRecord, record_line
from perago.runtime.observe.events import Event
from perago.runtime.observe.sanitize import Masker
from perago.runtime.runs.log import RunLog

ATTEMPT = Attempt("wf", "t1", "clean", "clean_events", retry_count=1, seq=2, iteration=0)
TASK = TaskState("clean", "clean_events", "SIMPLE", "t1", "IN_PROGRESS", 1, 0, 2, started=10.0)
STATE = WorkflowState("wf", "RUNNING", None, {}, [TASK], name="flow")


class World:
    def __init__(self) -> None:
        self.file = io.StringIO()
        self.log = RunLog(self.file, Masker(["hunter2"]), clock=lambda: 1_700_000_000.25)

    @property
    def lines(self) -> list[str]:
        return [line.removeprefix("2023-11-14 22:13:20.250  ") for line in self.file.getvalue().splitlines()]


def test_a_status_is_written_when_it_changes_with_why_it_failed() -> None:
    world = World()
    world.log.show(STATE)
    world.log.show(STATE)
    failed = replace(TASK, status="FAILED", reason="ValueError: one\ntwo", ended=12.5)
    world.log.show(replace(STATE, status="FAILED", reason="task t1 failed", tasks=[failed]))
    assert world.lines == [
        "clean (retry 1): IN_PROGRESS",
        "workflow flow (wf): RUNNING",
        "clean (retry 1): FAILED after 2.5 s: ValueError: one",
        "    two",
        "workflow flow (wf): FAILED: task t1 failed",
    ]


def test_steps_are_written_once_and_what_bodies_print_after_their_name_without_secrets() -> None:
    world = World()
    for event in (
        Event("step", ATTEMPT, step="body"),
        Event("step", ATTEMPT, step="body"),
        Event("printed", ATTEMPT, text="the password is hunter2 [red]"),
        Event("printed", ATTEMPT, text=record_line(AttemptRecord("e", "COMPLETED", seconds={"body": 2.0}))),
        Event("restarted"),
    ):
        world.log.on_event(event)
    assert world.lines == [
        "clean (retry 1): body",
        "clean (retry 1) | the password is *** [red]",
        "clean (retry 1): times: body 2.00 s",
    ]


def test_the_workers_log_is_in_it_but_not_what_bodies_printed_a_second_time() -> None:
    world = World()
    fields = {"attempt": {"reference": "clean", "execution": "e1"}}
    logger = logging.Logger("perago.output")
    logger.addHandler(world.log)
    logger.info("a line of an attempt", extra=fields)
    logger.info("a line of a module that is loaded")
    logger = logging.Logger("perago.supervisor")
    logger.addHandler(world.log)
    logger.debug("too much")
    try:
        raise ValueError("hunter2")
    except ValueError:
        logger.error("it went %s", "wrong", extra=fields, exc_info=sys.exc_info())
    assert world.lines[0] == "INFO output: a line of a module that is loaded"
    assert world.lines[1] == "ERROR supervisor: it went wrong  [clean, execution e1]"
    assert world.lines[2] == "    Traceback (most recent call last):"
    assert world.lines[-1] == "    ValueError: ***"


def test_a_file_that_takes_no_more_ends_nothing() -> None:
    world = World()
    world.file.close()
    world.log.write("lost")
    world.log.show(STATE)


def test_an_authors_traceback_that_was_printed_is_not_written_again_with_the_ending() -> None:
    world = World()
    for name in ("perago.attempts", "perago.executor"):
        record = logging.makeLogRecord(
            {"name": name, "levelno": 30, "levelname": "WARNING", "msg": "ended", "trace": "Traceback\nof it"}
        )
        world.log.emit(record)
    assert world.lines == ["WARNING attempts: ended", "WARNING executor: ended", "    Traceback", "    of it"]
