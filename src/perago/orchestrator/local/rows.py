"""Rows to runs and tasks, and back.  Everything here runs inside a transaction of the store."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache

from perago.errors import OrchestratorNotFound
from perago.orchestrator.local.decider import run_deadline
from perago.orchestrator.local.definition import WorkflowDefinition
from perago.orchestrator.local.parse import parse_workflow
from perago.orchestrator.local.registered import taskdefs_of
from perago.orchestrator.local.state import Run, Task
from perago.orchestrator.local.step_types import is_system
from perago.orchestrator.local.store import dump_json
from perago.orchestrator.local.taskdef import TaskRules, parse_taskdef
from perago.orchestrator.local.timeouts import deadline

_COLUMNS = [column.name for column in fields(Task) if column.name != "changed"]
_JSON_COLUMNS = frozenset({"input", "output"})
_FLAG_COLUMNS = frozenset({"executed", "retried"})
_UPSERT = (
    f"INSERT INTO task ({', '.join(_COLUMNS)}, deadline) "
    f"VALUES ({', '.join('?' * len(_COLUMNS))}, ?) ON CONFLICT (id) DO UPDATE SET "
    + ", ".join(f"{column} = excluded.{column}" for column in [*_COLUMNS[1:], "deadline"])
)


@lru_cache(maxsize=256)
def parse_rules(text: str) -> Mapping[str, TaskRules]:
    """The rules of the TaskDefs that a run was started with, by name."""
    return {name: parse_taskdef(body) for name, body in json.loads(text).items()}


def insert_run(connection: sqlite3.Connection, run: Run, definition: str, taskdefs: str) -> None:
    """Write a new run; its tasks come with `save_run`."""
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
    """The TaskDefs that a workflow uses, as they are registered now, as a run keeps them."""
    return dump_json(taskdefs_of(connection, definition), "the TaskDefs")


def renew_taskdefs(connection: sqlite3.Connection, run: Run) -> None:
    """Have a run go by the TaskDefs that are registered now, and not by those of its start."""
    taskdefs = registered_taskdefs(connection, run.definition)
    connection.execute("UPDATE run SET taskdefs = ? WHERE id = ?", (taskdefs, run.id))
    run.rules = parse_rules(taskdefs)


def load_run(connection: sqlite3.Connection, run_id: str) -> Run:
    """A run with all of its tasks, in the order they were scheduled."""
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
    """Write what has changed in a run."""
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
    """One task and the rules it runs under."""
    row = connection.execute(
        "SELECT task.*, run.taskdefs FROM task JOIN run ON run.id = task.run_id WHERE task.id = ?", (task_id,)
    ).fetchone()
    if row is None:
        raise OrchestratorNotFound(f"no task {task_id}")
    return task_in(row), rules_in(row)


def save_task(connection: sqlite3.Connection, task: Task, rules: TaskRules) -> None:
    """Write one task, with the moment it next runs out of time."""
    values = [_value(task, column) for column in _COLUMNS]
    due = None if task.over or is_system(task) else deadline(task, rules)
    connection.execute(_UPSERT, [*values, due])
    task.changed = False


def due_runs(connection: sqlite3.Connection, now: float) -> list[str]:
    """The runs in which something is out of time."""
    rows = connection.execute(
        "SELECT run_id FROM task WHERE deadline <= :now UNION SELECT id FROM run WHERE deadline <= :now",
        {"now": now},
    )
    return [row[0] for row in rows]


def rules_in(row: sqlite3.Row) -> TaskRules:
    """The rules of the task in a row that also holds its run's TaskDefs."""
    return parse_rules(row["taskdefs"]).get(row["name"]) or TaskRules(row["name"])


def task_in(row: sqlite3.Row) -> Task:
    """The task in a row."""
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
