"""What the bodies of a workflow printed and logged, as it was or as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from perago.errors import RuntimeConfigError
from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.nearest import did_you_mean, listed
from perago.runtime.runs.attempts import OPEN, LoggedAttempt, read_attempt, worker_tasks
from perago.runtime.runs.look import Found, LookedAt, find

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
    found: Found,
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


def run_and_step(servers: LookedAt, name: str | None, step: str | None) -> tuple[Found, str | None]:
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


def _newest_steps(servers: LookedAt) -> list[str]:
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
