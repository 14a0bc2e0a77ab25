"""What the embedded orchestrator shows of its workflows and tasks: rows and runs as the port's values."""

from __future__ import annotations

import json
import sqlite3
from functools import lru_cache

from perago.orchestrator.base import Json, LogLine, TaskState, WorkflowState, WorkflowSummary
from perago.orchestrator.local.state import Run, Task
from perago.orchestrator.local.step_types import is_system


def workflow_state(run: Run, definition: Json) -> WorkflowState:
    """A run with all of its tasks, in the order they were scheduled."""
    return WorkflowState(
        id=run.id,
        status=run.status,
        reason=run.reason,
        output=run.output,
        tasks=[_task_state(run, task) for task in run.tasks],
        name=run.definition.name,
        input=run.input,
        started=run.created,
        ended=run.ended,
        definition=definition,
    )


def definition_of(connection: sqlite3.Connection, run_id: str) -> Json:
    """The definition that a run was started with, as it was registered."""
    row = connection.execute("SELECT definition FROM run WHERE id = ?", (run_id,)).fetchone()
    return _read(row[0])


@lru_cache(maxsize=256)
def _read(text: str) -> Json:
    found: Json = json.loads(text)
    return found


def summaries(connection: sqlite3.Connection, count: int, start: int) -> list[WorkflowSummary]:
    """The runs that were started last, newest first."""
    rows = connection.execute(
        "SELECT id, name, status, created, ended, reason FROM run ORDER BY number DESC LIMIT ? OFFSET ?",
        (count, start),
    ).fetchall()
    return [WorkflowSummary(*row) for row in rows]


def log_lines(connection: sqlite3.Connection, task_id: str) -> list[LogLine]:
    """The lines of a task's log, oldest first."""
    rows = connection.execute(
        "SELECT at, line FROM task_log WHERE task_id = ? ORDER BY number", (task_id,)
    ).fetchall()
    # What was logged as one entry may hold several lines.
    return [LogLine(at, line) for at, entry in rows for line in entry.split("\n")]


def _task_state(run: Run, task: Task) -> TaskState:
    return TaskState(
        reference=task.reference,
        task_name=task.name,
        task_type=run.step(task).type,
        task_id=task.id,
        status=task.status,
        retry_count=task.retry_count,
        iteration=task.iteration,
        seq=task.seq,
        input=task.input,
        output=task.output,
        reason=task.reason,
        scheduled=task.scheduled,
        started=task.started,
        ended=task.ended,
        worker=task.worker_id,
        available=task.available,
        retry_limit=None if is_system(task) else run.retries_allowed(task),
    )
