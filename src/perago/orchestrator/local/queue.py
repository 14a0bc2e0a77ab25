"""The task queues.  A poll takes waiting tasks, oldest first, within the TaskDef's limits.

Tasks are taken in one immediate transaction, so that only one of several pollers gets a task.
"""

from __future__ import annotations

import sqlite3

from perago.orchestrator.base import Assignment
from perago.orchestrator.local.persistence import rules_in, save_task, task_in
from perago.orchestrator.local.state import Task, milliseconds
from perago.orchestrator.local.taskdef import TaskRules
from perago.protocol.attempt import IN_PROGRESS, Attempt

# A task whose update time is in the future was queued before the clock was set back: it has waited long enough.
_WAITING = "task.name = ?1 AND task.status = 'SCHEDULED' AND (task.available <= ?2 OR task.updated > ?2)"


def any_waiting(connection: sqlite3.Connection, name: str, now: float) -> bool:
    """Return whether there is a task to poll."""
    row = connection.execute(f"SELECT 1 FROM task WHERE {_WAITING} LIMIT 1", (name, now)).fetchone()
    return row is not None


def take(
    connection: sqlite3.Connection, name: str, *, worker_id: str, count: int, now: float
) -> list[Assignment]:
    """Set up to `count` waiting tasks to IN_PROGRESS and return them."""
    rows = connection.execute(
        "SELECT task.*, run.taskdefs, run.name AS workflow_name FROM task JOIN run ON run.id = task.run_id "
        f"WHERE {_WAITING} ORDER BY task.available, task.number LIMIT ?3",
        (name, now, count),
    ).fetchall()
    taken: list[Assignment] = []
    for row in rows:
        task, rules = task_in(row), rules_in(row)
        if not _has_room(connection, rules, now):
            break
        task.status = IN_PROGRESS
        task.started = task.started or now
        task.updated = now
        task.worker_id = worker_id
        task.poll_count += 1
        save_task(connection, task, rules)
        taken.append(Assignment(_attempt(task, rules, row["workflow_name"]), task.input))
    return taken


def _has_room(connection: sqlite3.Connection, rules: TaskRules, now: float) -> bool:
    """Return whether the TaskDef's limits allow one more task to start."""
    if rules.concurrent_exec_limit > 0:
        working = connection.execute(
            "SELECT count(*) FROM task WHERE name = ? AND status = 'IN_PROGRESS'", (rules.name,)
        ).fetchone()[0]
        if working >= rules.concurrent_exec_limit:
            return False
    if rules.rate_limit_per_frequency > 0:
        started = connection.execute(
            "SELECT count(*) FROM task WHERE name = ? AND started > ? AND started <= ?",
            (rules.name, now - rules.rate_limit_frequency_in_seconds, now),
        ).fetchone()[0]
        return int(started) < rules.rate_limit_per_frequency
    return True


def _attempt(task: Task, rules: TaskRules, workflow_name: str) -> Attempt:
    return Attempt(
        workflow_instance_id=task.run_id,
        task_id=task.id,
        reference_task_name=task.reference,
        task_name=task.name,
        retry_count=task.retry_count,
        seq=task.seq,
        iteration=task.iteration,
        response_timeout_seconds=rules.response_timeout_seconds,
        scheduled_time=milliseconds(task.scheduled),
        workflow_name=workflow_name,
    )
