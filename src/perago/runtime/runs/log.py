"""What the bodies of a workflow printed and logged, as it was or as it comes.

run.log: all that a run showed and did, as text in the run's folder, with the worker's own log.

The rules: every line begins with its moment in UTC, a text of several lines stays together, no secret of the settings and
nothing that controls a terminal is in it, and a disk that takes no more of it does not end the run.
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
from perago.protocol.suggestions import did_you_mean, listed
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import trace_of
from perago.runtime.observe.sanitize import printable
from perago.runtime.runs.format import moment, printed, record_lines, status_line, who
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


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of a task's log, and whose it is."""

    task: TaskState
    line: LogLine


def printed_lines(attempts: Sequence[LoggedAttempt], step: str | None = None) -> list[Printed]:
    """The lines of all attempts, or of one step's, in the order of time."""
    if step is not None and not any(of_step(one.task, step) for one in attempts):
        raise RuntimeConfigError(_no_step(step, attempts))
    wanted = [one for one in attempts if step is None or of_step(one.task, step)]
    lines = [Printed(one.task, line) for one in wanted for line in one.lines]
    return sorted(lines, key=lambda one: one.line.at)


class NewLines:
    """What has come since the last look at a workflow: each line once, and no call for what prints no more."""

    def __init__(self, orchestrator: Orchestrator, step: str | None = None) -> None:
        self._orchestrator = orchestrator
        self._step = step
        self._seen: dict[str, int] = {}
        self._read: set[str] = set()

    def of(self, state: WorkflowState) -> list[Printed]:
        """The new lines, in the order of time."""
        attempts = [
            read_attempt(self._orchestrator, task)
            for task in worker_tasks(state)
            if task.task_id not in self._read and (self._step is None or of_step(task, self._step))
        ]
        new = [
            Printed(one.task, line)
            for one in attempts
            for line in one.lines[self._seen.get(one.task.task_id, 0) :]
        ]
        self._seen |= {one.task.task_id: len(one.lines) for one in attempts}
        # A result is sent when the log is complete: who is over prints no more.
        self._read |= {one.task.task_id for one in attempts if one.task.status not in OPEN}
        return sorted(new, key=lambda one: one.line.at)


def follow(
    found: RunHandle,
    orchestrator: Orchestrator,
    step: str | None = None,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Printed]:
    """The lines that there are, then those that come, until the workflow is over or nobody drives it any more."""
    lines = NewLines(orchestrator, step)
    while True:
        state = orchestrator.workflow(found.workflow_id)
        over = not state.running or not found.going_on
        yield from lines.of(state)
        if over:
            return
        pause(PAUSE_SECONDS)


def run_and_step(
    servers: ReadOnlyBackend, name: str | None, step: str | None
) -> tuple[RunHandle, str | None]:
    """The run of that name and the step; a name that is no run's may be a step's of the newest one: `logs clean`."""
    try:
        return find(servers, name), step
    except RuntimeConfigError as no_run:
        steps = [] if name is None or step is not None else _newest_steps(servers)
        if name is None or not steps:
            raise
        if any(name in (one, _without_iteration(one)) for one in steps):
            return find(servers, None), name
        close = did_you_mean(name, steps)
        raise (
            RuntimeConfigError(f"{name!r} is neither a run nor a step of the newest one{close}")
            if close
            else no_run
        ) from None


def _newest_steps(servers: ReadOnlyBackend) -> list[str]:
    try:
        newest = find(servers, None)
        with closing(newest.open()) as orchestrator:
            return [one.reference for one in worker_tasks(orchestrator.workflow(newest.workflow_id))]
    except RuntimeConfigError:
        return []


def of_step(task: TaskState, step: str) -> bool:
    """Whether a task is of that step; a loop's step may be named without its iteration."""
    return step in (task.reference, _without_iteration(task.reference))


def _without_iteration(reference: str) -> str:
    return reference.partition("__")[0]


def _no_step(step: str, attempts: Sequence[LoggedAttempt]) -> str:
    names = list(dict.fromkeys(one.task.reference for one in attempts))
    there = listed(names, none="none that a worker runs")
    return f"no step {step!r} has come up in this run; there are: {there}{did_you_mean(step, names)}"


ENDINGS = "perago.attempts"
"""The logger that says how executions ended."""
Mask = Callable[[str], str]


class RunLog(logging.Handler):
    """An onlooker of the run and a handler of the worker's log, into one file."""

    def __init__(self, file: TextIO, mask: Mask, clock: Callable[[], float] = time.time) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._mask = mask
        self._clock = clock
        self._seen: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self._status = ""

    def write(self, text: str) -> None:
        """Add a text; lines after its first are indented."""
        whole = printable(self._mask(text)).replace("\n", "\n    ")
        # The worker logs from several threads.
        self.acquire()
        try:
            with suppress(OSError, ValueError):
                self._file.write(f"{moment(self._clock())}  {whole}\n")
                self._file.flush()
        finally:
            self.release()

    def show(self, state: WorkflowState) -> None:
        """Where the workflow stands now."""
        for task in worker_tasks(state):
            if self._seen.get(task.task_id) != task.status:
                self._seen[task.task_id] = task.status
                why = f": {task.reason}" if task.reason and task.status not in OPEN | {"COMPLETED"} else ""
                self.write(status_line(task) + why)
        if self._status != state.status:
            self._status = state.status
            why = f": {state.reason}" if state.reason and not state.running else ""
            self.write(f"workflow {state.name} ({state.id}): {state.status}{why}")

    def heard(self, event: Event) -> None:
        """What the worker tells; its own log has the rest."""
        if event.attempt is None:
            return
        reference, retry = event.attempt.reference_task_name, event.attempt.retry_count
        if event.kind == "step":
            # Some steps are said twice, by the worker and by the executor.
            if self._at.get(event.attempt.task_id) != event.step:
                self.write(f"{who(reference, retry)}: {event.step}")
            self._at[event.attempt.task_id] = event.step
        elif event.kind == "printed":
            record = parse_record(event.text)
            if record is None:
                self.write(printed(reference, retry, event.text))
                return
            for line in record_lines(record):
                self.write(f"{who(reference, retry)}: {line}")

    def emit(self, record: logging.LogRecord) -> None:
        """A record of the worker's log; what a body prints comes as an event."""
        fields = getattr(record, "attempt", None)
        if record.name == "perago.output" and fields:
            return
        of = f"  [{fields['reference']}, execution {fields['execution']}]" if isinstance(fields, dict) else ""
        try:
            text = f"{record.levelname} {record.name.removeprefix('perago.')}: {record.getMessage()}{of}"
            # An author's traceback is there already, as lines of the step.
            if record.name != ENDINGS and (trace := trace_of(record)):
                text += "\n" + trace
        except Exception:
            self.handleError(record)
            return
        self.write(text)
