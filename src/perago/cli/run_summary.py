"""The end of a workflow, for people and as data: what `perago run` ends with.

The rule: a reason is said once, where it arose; the orchestrator's own words for it are not repeated for the workflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from perago.cli.run_view import STYLES
from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.runs import words
from perago.runtime.runs.attempts import LoggedAttempt, by_step, seconds_of

Line = tuple[str, str | None]


def summary(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> Iterator[Line]:
    """Each step's last attempt with how many it took, how long, and what it published; then the workflow's end."""
    steps = by_step(attempts)
    width = max((len(reference) for reference in steps), default=0)
    for reference, tries in steps.items():
        last = tries[-1].task
        yield f"{reference:<{width}}  {_step_line(tries)}", STYLES.get(last.status, "red")
        if last.reason and last.status != "COMPLETED":
            for line in last.reason.split("\n"):
                yield f"{'':<{width}}  {line}", None
    took = words.duration(workflow_seconds(state))
    yield (
        f"workflow {state.name}: {state.status}" + (f" in {took}" if took else ""),
        STYLES.get(state.status, "red"),
    )
    if reason := workflow_reason(state, attempts):
        yield f"  {reason}", None
    for line in output_lines(state):
        yield line, None


def workflow_reason(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> str:
    """Why the workflow did not complete, where no attempt says it."""
    said = any(
        tries[-1].task.reason and tries[-1].task.status != "COMPLETED" for tries in by_step(attempts).values()
    )
    return "" if said or state.status == "COMPLETED" else state.reason or ""


def output_lines(state: WorkflowState) -> Iterator[str]:
    """The workflow's output; that of one that failed only if there is something in it."""
    if state.output if state.status == "COMPLETED" else any(one is not None for one in state.output.values()):
        yield f"output: {json.dumps(dict(state.output), indent=2, ensure_ascii=False)}"


def as_json(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> dict[str, Any]:
    """The workflow as data, every attempt included."""
    return {
        "workflow_id": state.id,
        "workflow": state.name,
        "status": state.status,
        "reason": state.reason,
        "started": state.started,
        "seconds": workflow_seconds(state),
        "output": dict(state.output),
        "tasks": [_task_json(attempt) for attempt in attempts],
    }


def workflow_seconds(state: WorkflowState) -> float | None:
    """How long a workflow took that is over."""
    if state.running or state.started is None or state.ended is None:
        return None
    return round(max(0.0, state.ended - state.started), 3)


def _step_line(tries: Sequence[LoggedAttempt]) -> str:
    last = tries[-1]
    count = "1 attempt " if len(tries) == 1 else f"{len(tries)} attempts"
    took = words.duration(_seconds([one.task for one in tries]))
    moved = words.changes(last.record)
    published = words.published(last.task) + (f" ({moved})" if moved else "")
    return f"{last.task.status:<12}  {count}  {took:>8}  {published}".rstrip()


def _seconds(tasks: Sequence[TaskState]) -> float | None:
    """How long all attempts of a step took together."""
    known = [took for task in tasks if (took := seconds_of(task)) is not None]
    return sum(known) if known else None


def _task_json(attempt: LoggedAttempt) -> dict[str, Any]:
    task = attempt.task
    took = seconds_of(task)
    return {
        "reference": task.reference,
        "task": task.task_name,
        "task_id": task.task_id,
        "status": task.status,
        "retry_count": task.retry_count,
        "iteration": task.iteration,
        "started": task.started,
        "seconds": None if took is None else round(took, 3),
        "worker": task.worker,
        "output": dict(task.output),
        "reason": task.reason,
        "records": [asdict(record) for record in attempt.records],
    }
