"""Reads and writes definitions, runs and tasks, and converts them to the port's types.

Every function takes a connection from the store.  A definition is stored exactly as it was sent.  If no version is
given, the newest one is used, as in Conductor.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from perago.errors import OrchestratorNotFound
from perago.orchestrator.base import Json, LogLine, TaskState, WorkflowState, WorkflowSummary
from perago.orchestrator.local.decider import run_deadline
from perago.orchestrator.local.parse import parse_workflow
from perago.orchestrator.local.state import Run, Task
from perago.orchestrator.local.step_handlers import is_system
from perago.orchestrator.local.store import dump_json
from perago.orchestrator.local.taskdef import TaskRules, deadline, parse_taskdef
from perago.workflow.model.definition import WorkflowDefinition

_COLUMNS = [column.name for column in fields(Task) if column.name != "changed"]
_JSON_COLUMNS = frozenset({"input", "output"})
_FLAG_COLUMNS = frozenset({"executed", "retried"})
_UPSERT = (
    f"INSERT INTO task ({', '.join(_COLUMNS)}, deadline) "
    f"VALUES ({', '.join('?' * len(_COLUMNS))}, ?) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in [*_COLUMNS[1:], "deadline"])
)


def find_workflow(connection: sqlite3.Connection, name: str, version: int | None) -> str | None:
    """Return a workflow definition as JSON text, or None."""
    row = connection.execute(
        "SELECT body FROM workflow_def WHERE name = :name AND (:version IS NULL OR version = :version) "
        "ORDER BY version DESC LIMIT 1",
        {"name": name, "version": version},
    ).fetchone()
    return None if row is None else str(row[0])


def workflow_body(connection: sqlite3.Connection, name: str, version: int | None) -> str:
    """Return a workflow definition as JSON text.  Raises `OrchestratorNotFound` if it is not registered."""
    body = find_workflow(connection, name, version)
    if body is None:
        wanted = name if version is None else f"{name} version {version}"
        raise OrchestratorNotFound(f"no workflow definition {wanted}: register it first")
    return body


def workflow_versions(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """Return a mapping from the name of every workflow to its versions, oldest first."""
    found: dict[str, list[int]] = {}
    for name, version in connection.execute("SELECT name, version FROM workflow_def ORDER BY name, version"):
        found.setdefault(name, []).append(version)
    return found


def taskdefs_of(connection: sqlite3.Connection, definition: WorkflowDefinition) -> dict[str, Json]:
    """Return the registered TaskDefs for a workflow's steps, by name."""
    names = sorted({step.name for step in definition.walk()})
    rows = connection.execute(
        f"SELECT name, body FROM taskdef WHERE name IN ({', '.join('?' * len(names))})", names
    )
    return {row["name"]: json.loads(row["body"]) for row in rows}


@lru_cache(maxsize=256)
def parse_rules(text: str) -> Mapping[str, TaskRules]:
    """Parse the TaskDefs stored with a run into rules, by name."""
    return {name: parse_taskdef(body) for name, body in json.loads(text).items()}


def insert_run(connection: sqlite3.Connection, run: Run, definition: str, taskdefs: str) -> None:
    """Insert a new run.  Its tasks are written by `save_run`."""
    connection.execute(
        "INSERT INTO run (id, name, definition, taskdefs, input, output, status, created, branches) "
        "VALUES (?, ?, ?, ?, ?, '{}', ?, ?, ?)",
        (
            run.id,
            run.definition.name,
            definition,
            taskdefs,
            dump_json(run.input, f"the input of workflow {run.definition.name}"),
            run.status,
            run.created,
            dump_json(run.branches, "the branches"),
        ),
    )


def registered_taskdefs(connection: sqlite3.Connection, definition: WorkflowDefinition) -> str:
    """Return a workflow's registered TaskDefs as JSON text, in the form stored with a run."""
    return dump_json(taskdefs_of(connection, definition), "the TaskDefs")


def renew_taskdefs(connection: sqlite3.Connection, run: Run) -> None:
    """Update the TaskDefs that are stored with a run to those that are registered now."""
    taskdefs = registered_taskdefs(connection, run.definition)
    connection.execute("UPDATE run SET taskdefs = ? WHERE id = ?", (taskdefs, run.id))
    run.rules = parse_rules(taskdefs)


def load_run(connection: sqlite3.Connection, run_id: str) -> Run:
    """Return a run with all its tasks, in the order in which they were scheduled.

    Raises `OrchestratorNotFound` if there is no such run.
    """
    row = connection.execute("SELECT * FROM run WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise OrchestratorNotFound(f"no workflow {run_id}")
    tasks = connection.execute("SELECT * FROM task WHERE run_id = ? ORDER BY seq", (run_id,))
    return Run(
        id=row["id"],
        definition=parse_workflow(row["definition"]),
        rules=parse_rules(row["taskdefs"]),
        input=json.loads(row["input"]),
        created=row["created"],
        status=row["status"],
        output=json.loads(row["output"]),
        reason=row["reason"],
        ended=row["ended"],
        tasks=[task_in(task) for task in tasks],
        retried_at=row["retried_at"],
        branches=json.loads(row["branches"]),
        changed=False,
    )


def save_run(connection: sqlite3.Connection, run: Run) -> None:
    """Write a run's changed tasks, and the run itself if it changed."""
    for task in run.tasks:
        if task.changed:
            save_task(connection, task, run.rules_for(task.name))
    if run.changed:
        connection.execute(
            "UPDATE run SET output = ?, status = ?, reason = ?, ended = ?, deadline = ?, retried_at = ? WHERE id = ?",
            (
                dump_json(run.output, "the output"),
                run.status,
                run.reason,
                run.ended,
                run_deadline(run),
                run.retried_at,
                run.id,
            ),
        )
        run.changed = False


def load_task(connection: sqlite3.Connection, task_id: str) -> tuple[Task, TaskRules]:
    """Return a task and its TaskDef's rules.  Raises `OrchestratorNotFound` if there is no such task."""
    row = connection.execute(
        "SELECT task.*, run.taskdefs FROM task JOIN run ON run.id = task.run_id WHERE task.id = ?", (task_id,)
    ).fetchone()
    if row is None:
        raise OrchestratorNotFound(f"no task {task_id}")
    return task_in(row), rules_in(row)


def save_task(connection: sqlite3.Connection, task: Task, rules: TaskRules) -> None:
    """Write a task, with its next deadline."""
    values = [_value(task, column) for column in _COLUMNS]
    due = None if task.over or is_system(task) else deadline(task, rules)
    connection.execute(_UPSERT, [*values, due])
    task.changed = False


def due_runs(connection: sqlite3.Connection, now: float) -> list[str]:
    """Return the ids of the runs in which a timeout is due."""
    rows = connection.execute(
        "SELECT run_id FROM task JOIN run ON run.id = run_id WHERE task.deadline <= :now AND run.status <> 'PAUSED' "
        "UNION SELECT id FROM run WHERE deadline <= :now",
        {"now": now},
    )
    return [row[0] for row in rows]


def rules_in(row: sqlite3.Row) -> TaskRules:
    """Return the rules for the task in a database row, which must also contain the TaskDefs of the task's run."""
    return parse_rules(row["taskdefs"]).get(row["name"]) or TaskRules(row["name"])


def task_in(row: sqlite3.Row) -> Task:
    """Return the task in a database row."""
    values = {column: row[column] for column in _COLUMNS}
    for column in _JSON_COLUMNS:
        values[column] = json.loads(values[column])
    for column in _FLAG_COLUMNS:
        values[column] = bool(values[column])
    return Task(**values, changed=False)


def _value(task: Task, column: str) -> object:
    value = getattr(task, column)
    if column in _JSON_COLUMNS:
        return dump_json(value, f"the {column} of task {task.reference}")
    return value


def workflow_state(run: Run, definition: Json) -> WorkflowState:
    """Convert a run to the port's type, with its tasks in the order in which they were scheduled."""
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
    """Return a run's definition, as it was registered when the run started."""
    row = connection.execute("SELECT definition FROM run WHERE id = ?", (run_id,)).fetchone()
    return _parse_definition(row[0])


@lru_cache(maxsize=256)
def _parse_definition(text: str) -> Json:
    found: Json = json.loads(text)
    return found


def summaries(connection: sqlite3.Connection, count: int, start: int) -> list[WorkflowSummary]:
    """Return up to `count` runs, newest first, skipping the first `start`."""
    rows = connection.execute(
        "SELECT id, name, status, created, ended, reason, input FROM run ORDER BY number DESC LIMIT ? OFFSET ?",
        (count, start),
    ).fetchall()
    return [
        WorkflowSummary(run_id, name, status, created, ended, reason, json.loads(given))
        for run_id, name, status, created, ended, reason, given in rows
    ]


def log_lines(connection: sqlite3.Connection, task_id: str) -> list[LogLine]:
    """Return the lines in a task's log, oldest first."""
    rows = connection.execute(
        "SELECT at, line FROM task_log WHERE task_id = ? ORDER BY number", (task_id,)
    ).fetchall()
    # One entry may contain several lines.
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
        updated=task.updated,
        response_seconds=run.rules_for(task.name).response_timeout_seconds,
        available=task.available,
        retry_limit=None if is_system(task) else run.retries_allowed(task),
    )
