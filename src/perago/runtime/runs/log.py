"""Reads the output of a workflow's task bodies, live or after the run, and writes run.log, the full log of a run.

run.log is a text file in the run's folder and includes the worker's own log.  Every entry starts with its UTC time, and
multi-line entries are kept together.  Secrets from the settings are masked, and terminal control characters are
removed.  A full disk does not stop the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TextIO

from perago.errors import RuntimeConfigError
from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.attempt_record import parse_record
from perago.protocol.provenance import is_packages_line
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import trace_of
from perago.runtime.observe.sanitize import printable
from perago.runtime.runs.format import attempt_name, body_line, moment, record_lines, status_line
from perago.runtime.runs.inspect import (
    OPEN,
    LoggedAttempt,
    ReadOnlyBackend,
    RunHandle,
    find,
    read_attempt,
    worker_tasks,
)

PAUSE_SECONDS = 0.5
ENDINGS = "perago.attempts"
"""The logger that reports how executions ended."""
Mask = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class BodyLine:
    """A line from a task's log, and the task that it belongs to."""

    task: TaskState
    line: LogLine


def printed_lines(attempts: Sequence[LoggedAttempt], step: str | None = None) -> list[BodyLine]:
    """Return the lines of all attempts, or of one step's attempts, ordered by time.

    Raises `RuntimeConfigError` for an unknown step.
    """
    if step is not None and not any(of_step(one.task, step) for one in attempts):
        raise RuntimeConfigError(_no_step(step, attempts))
    wanted = [one for one in attempts if step is None or of_step(one.task, step)]
    lines = [BodyLine(one.task, line) for one in wanted for line in one.lines]
    return sorted(lines, key=lambda one: one.line.at)


class NewLines:
    """Reads each new log line of a workflow once.  Makes no call for a finished attempt that it has read completely."""

    def __init__(self, orchestrator: Orchestrator, step: str | None = None) -> None:
        self._orchestrator = orchestrator
        self._step = step
        self._seen: dict[str, int] = {}
        self._read: set[str] = set()

    def read(self, state: WorkflowState) -> list[BodyLine]:
        """Return the lines written since the last call, ordered by time."""
        attempts = [
            read_attempt(self._orchestrator, task)
            for task in worker_tasks(state)
            if task.task_id not in self._read and (self._step is None or of_step(task, self._step))
        ]
        new = [
            BodyLine(one.task, line)
            for one in attempts
            for line in one.lines[self._seen.get(one.task.task_id, 0) :]
        ]
        self._seen |= {one.task.task_id: len(one.lines) for one in attempts}
        # A result is sent after the log is complete, so a finished attempt logs nothing more.
        self._read |= {one.task.task_id for one in attempts if one.task.status not in OPEN}
        return sorted(new, key=lambda one: one.line.at)


def follow(
    found: RunHandle,
    orchestrator: Orchestrator,
    step: str | None = None,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[BodyLine]:
    """Yield the existing lines, then new ones, until the workflow has finished or no process is running it any more."""
    lines = NewLines(orchestrator, step)
    while True:
        state = orchestrator.workflow(found.workflow_id)
        over = not state.running or not found.may_progress
        yield from lines.read(state)
        if over:
            return
        pause(PAUSE_SECONDS)


def run_and_step(
    servers: ReadOnlyBackend, name: str | None, step: str | None
) -> tuple[RunHandle, str | None]:
    """Find a run and a step by name.

    A name that is not a run may be a step of the newest run, as in `logs clean`.  Raises `RuntimeConfigError` if the
    name is neither.
    """
    try:
        found = find(servers, name)
        # A step's whole name comes before the beginning of an id.
        whole = name is None or step is not None or name in (found.id, found.workflow_id)
        if whole or not _is_step(name, _newest_steps(servers)):
            return found, step
        return find(servers, None), name
    except RuntimeConfigError as no_run:
        steps = [] if name is None or step is not None else _newest_steps(servers)
        if name is None or not steps:
            raise
        if _is_step(name, steps):
            return find(servers, None), name
        # An ambiguous or misspelt id has a better remedy of its own.
        if not str(no_run).startswith("no run ") or (
            "did you mean" in str(no_run) and not did_you_mean(name, steps)
        ):
            raise
        hint = did_you_mean(name, steps, otherwise=f", which has {listed(steps)}; `perago runs` lists runs")
        raise RuntimeConfigError(f"{name!r} is neither a run nor a step of the newest one{hint}") from None


def _is_step(name: str | None, references: Sequence[str]) -> bool:
    return any(name in (one, _without_iteration(one)) for one in references)


def _newest_steps(servers: ReadOnlyBackend) -> list[str]:
    try:
        newest = find(servers, None)
        with closing(newest.open()) as orchestrator:
            return [one.reference for one in worker_tasks(orchestrator.workflow(newest.workflow_id))]
    except RuntimeConfigError:
        return []


def of_step(task: TaskState, step: str) -> bool:
    """Return whether a task belongs to a step.  A step in a loop may be named without its iteration."""
    return step in (task.reference, _without_iteration(task.reference))


def _without_iteration(reference: str) -> str:
    return reference.partition("__")[0]


def _no_step(step: str, attempts: Sequence[LoggedAttempt]) -> str:
    names = list(dict.fromkeys(one.task.reference for one in attempts))
    there = listed(names, none="none that a worker runs")
    return f"this run has not reached a step {step!r}; its steps so far: {there}{did_you_mean(step, names)}"


class RunLog(logging.Handler):
    """Writes the run's progress, the worker's events and its log records to one file."""

    def __init__(self, file: TextIO, mask: Mask, clock: Callable[[], float] = time.time) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._mask = mask
        self._clock = clock
        self._seen: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self._status = ""

    def write(self, text: str) -> None:
        """Append an entry.  Lines after the first are indented."""
        entry = printable(self._mask(text)).replace("\n", "\n    ")
        # The worker logs from several threads.
        self.acquire()
        try:
            with suppress(OSError, ValueError):
                self._file.write(f"{moment(self._clock())}  {entry}\n")
                self._file.flush()
        finally:
            self.release()

    def show(self, state: WorkflowState) -> None:
        """Write the changes to the workflow's state since the last call."""
        for task in worker_tasks(state):
            if self._seen.get(task.task_id) != task.status:
                self._seen[task.task_id] = task.status
                why = f": {task.reason}" if task.reason and task.status not in OPEN | {"COMPLETED"} else ""
                self.write(status_line(task) + why)
        if self._status != state.status:
            self._status = state.status
            why = f": {state.reason}" if state.reason and not state.running else ""
            self.write(f"workflow {state.name} ({state.id}): {state.status}{why}")

    def on_event(self, event: Event) -> None:
        """Write an event about an attempt.  Other events are skipped, because they are in the worker's log."""
        if event.attempt is None:
            return
        reference, retry = event.attempt.reference_task_name, event.attempt.retry_count
        if event.kind == "step":
            # The worker and the executor both report some steps.
            if self._at.get(event.attempt.task_id) != event.step:
                self.write(f"{attempt_name(reference, retry)}: {event.step}")
            self._at[event.attempt.task_id] = event.step
        elif event.kind == "printed":
            record = parse_record(event.text)
            if record is None and is_packages_line(event.text):
                return
            if record is None:
                self.write(body_line(reference, retry, event.text))
                return
            for line in record_lines(record):
                self.write(f"{attempt_name(reference, retry)}: {line}")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record from the worker's log, except the bodies' output, which arrives as events."""
        fields = getattr(record, "attempt", None)
        if record.name == "perago.output" and fields:
            return
        of = f"  [{fields['reference']}, execution {fields['execution']}]" if isinstance(fields, dict) else ""
        try:
            text = f"{record.levelname} {record.name.removeprefix('perago.')}: {record.getMessage()}{of}"
            # The user traceback is already in the log, as lines of the step.
            if record.name != ENDINGS and (trace := trace_of(record)):
                text += "\n" + trace
        except Exception:
            self.handleError(record)
            return
        self.write(text)
