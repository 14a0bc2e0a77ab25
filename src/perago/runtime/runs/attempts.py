"""The attempts of a workflow as people look at them: states, what they logged, and the records of their executions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perago.declare.workflow.step_types import OWN
from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, parse_record

OPEN = frozenset({"SCHEDULED", "IN_PROGRESS"})


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """One attempt of a step; a step that was delivered twice has the records of both executions."""

    task: TaskState
    lines: Sequence[LogLine] = ()
    """What its body printed and logged; records are not among them."""
    records: Sequence[AttemptRecord] = ()

    @property
    def record(self) -> AttemptRecord | None:
        """The record of the execution that ended it: the newest."""
        return self.records[-1] if self.records else None


def worker_tasks(state: WorkflowState) -> list[TaskState]:
    """The attempts: what workers run, as against the orchestrator's own tasks."""
    return [task for task in state.tasks if task.task_type not in OWN]


def attempts_of(orchestrator: Orchestrator, state: WorkflowState) -> list[LoggedAttempt]:
    """Every attempt with its task log."""
    return [read_attempt(orchestrator, task) for task in worker_tasks(state)]


def read_attempt(orchestrator: Orchestrator, task: TaskState) -> LoggedAttempt:
    """One attempt with its task log."""
    # What nobody has begun has no log, and costs no call.
    lines, records = read_log(orchestrator.task_log(task.task_id) if task.started is not None else ())
    return LoggedAttempt(task, lines, records)


def read_log(log: Sequence[LogLine]) -> tuple[list[LogLine], list[AttemptRecord]]:
    """What a body printed and logged, and the records of its executions."""
    lines, records = list[LogLine](), list[AttemptRecord]()
    for line in log:
        record = parse_record(line.text)
        if record is None:
            lines.append(line)
        else:
            records.append(record)
    return lines, records


def by_step(attempts: Sequence[LoggedAttempt]) -> dict[str, list[LoggedAttempt]]:
    """The attempts of each step, by its reference, in the order in which the steps came up."""
    steps: dict[str, list[LoggedAttempt]] = {}
    for attempt in attempts:
        steps.setdefault(attempt.task.reference, []).append(attempt)
    return steps


def seconds_of(task: TaskState, now: float | None = None) -> float | None:
    """How long it took from its poll to its end, or has taken until `now`; None where that is not known."""
    end = task.ended if task.ended is not None else now
    return None if task.started is None or end is None else max(0.0, end - task.started)
