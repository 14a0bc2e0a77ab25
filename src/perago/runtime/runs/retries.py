"""When a retry comes, in words for people."""

from __future__ import annotations

from perago.orchestrator.base import TaskState, WorkflowState


def coming_retry(state: WorkflowState, failed: TaskState, now: float) -> str:
    """What follows a failed try: `; retry 1 of 3 in 60 s`; nothing where no retry waits."""
    for task in state.tasks:
        if (task.reference, task.retry_count) == (failed.reference, failed.retry_count + 1):
            return f"; {_number(task)} {waiting(task, now) or 'now'}" if task.status == "SCHEDULED" else ""
    return ""


def waiting(task: TaskState, now: float) -> str:
    """How long a task that waits will: `in 60 s`; nothing where it can be taken."""
    seconds = round(task.available - now)
    return f"in {seconds} s" if task.status == "SCHEDULED" and seconds > 0 else ""


def _number(task: TaskState) -> str:
    limit = task.retry_limit
    # Who goes on by hand gets more tries than the TaskDef allows.
    return f"retry {task.retry_count}" + (f" of {limit}" if limit and task.retry_count <= limit else "")
