"""The details of one step in a run: its attempts, newest first.

Each attempt has its times, checks, reason, printed lines, params and result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord
from perago.protocol.steps import ORDER
from perago.runtime.runs.format import OutputFold
from perago.runtime.runs.inspect import OPEN, read_attempt, seconds_of, worker_tasks
from perago.runtime.runs.run_input import WorkspaceRef, params_of, workspaces_in
from perago.ui.graph import step_of

ATTEMPTS = 10
"""The number of attempts shown on one page of a step."""
LINES = 200
"""The number of printed lines shown for an attempt. The newest are shown."""
_WIDTH = 1000
_WELL = OPEN | {"COMPLETED", "SKIPPED", "CANCELED"}
PHASES: Mapping[str, Sequence[str]] = {
    "input": ("input", "revoke", "reuse"),
    "download": ("workdir", "download", "verify"),
    "session": ("session",),
    "checks": ("pre checks", "result", "post checks"),
    "body": ("body",),
    "stage": ("changes", "first fence", "stage"),
    "publish": ("claim", "publish", "hand over", "cleanup"),
}
"""The phases shown to users, each with the steps of an attempt that it covers."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The time that an execution spent in a phase, and the phase's position in a bar 1000 units wide."""

    name: str
    seconds: float
    at: int
    width: int


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt, with everything that the page shows about it."""

    task: TaskState
    lines: Sequence[LogLine]
    more_lines: int
    records: Sequence[AttemptRecord]
    phases: Sequence[Phase]
    took: float | None
    reads: Sequence[WorkspaceRef]
    made: WorkspaceRef | None
    params: Any
    result: Any

    @property
    def is_open(self) -> bool:
        """True if the attempt may still change."""
        return self.task.status in OPEN


@dataclass(frozen=True, slots=True)
class StepPage:
    """A page of a step's attempts, newest first. `older` is the offset of the next page, or None."""

    reference: str
    attempts: Sequence[AttemptView]
    total: int
    older: int | None


def chosen_step(state: WorkflowState, wanted: str | None) -> str | None:
    """Return the requested step, or the one that the user most likely wants to see."""
    tasks = worker_tasks(state)
    if wanted is not None and any(wanted in (step_of(task), task.reference) for task in state.tasks):
        return next(step_of(task) for task in state.tasks if wanted in (step_of(task), task.reference))
    bad = [task for task in tasks if task.status not in _WELL]
    running = [task for task in tasks if task.status == "IN_PROGRESS"]
    first = running if state.running else (bad if state.status != "COMPLETED" else [])
    likely = first or tasks
    return step_of(likely[-1]) if likely else None


def step_page(orchestrator: Orchestrator, state: WorkflowState, step: str, skip: int = 0) -> StepPage:
    """Return one page of a step's attempts. Logs are read only for the attempts on this page."""
    tasks = sorted((task for task in state.tasks if step_of(task) == step), key=lambda task: -task.seq)
    page = tasks[skip : skip + ATTEMPTS]
    older = skip + ATTEMPTS if len(tasks) > skip + ATTEMPTS else None
    return StepPage(step, [_view(orchestrator, task) for task in page], len(tasks), older)


def phases_of(record: AttemptRecord | None) -> list[Phase]:
    """Return the time that an execution spent in each phase, in order."""
    if record is None or not record.seconds:
        return []
    known = {step.name for step in ORDER}
    spent = {name: sum(record.seconds.get(step, 0.0) for step in steps) for name, steps in PHASES.items()}
    spent["other"] = sum(took for step, took in record.seconds.items() if step not in known)
    whole = sum(spent.values()) or 1.0
    found, at = list[Phase](), 0
    for name, took in spent.items():
        width = round(_WIDTH * took / whole)
        if took > 0:
            found.append(Phase(name, took, at, max(1, width)))
        at += width
    return found


def _view(orchestrator: Orchestrator, task: TaskState) -> AttemptView:
    logged, fold = read_attempt(orchestrator, task), OutputFold(hint="")
    lines = [replace(one, text=text) for one in logged.lines for text in fold(one.text)]
    return AttemptView(
        task=task,
        lines=lines[-LINES:],
        more_lines=len(logged.lines) - len(lines[-LINES:]),
        records=logged.records,
        phases=phases_of(logged.record),
        took=seconds_of(task),
        reads=workspaces_in(task.input, only="workspace"),
        made=next(iter(workspaces_in(task.output, only="workspace")), None)
        if task.status == "COMPLETED"
        else None,
        params=params_of(task.input),
        result=_result(task),
    )


def _result(task: TaskState) -> Any:
    return task.output.get(
        "result", {name: value for name, value in task.output.items() if name != "workspace"}
    )
