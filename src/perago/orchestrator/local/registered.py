"""What is registered in the embedded orchestrator: TaskDefs by name, workflow definitions by name and version.

The rule: a definition is kept as it was sent; without a version the newest one is meant, as on Conductor.
"""

from __future__ import annotations

import json
import sqlite3

from perago.errors import OrchestratorNotFound
from perago.orchestrator.base import Json
from perago.orchestrator.local.definition import WorkflowDefinition


def find_workflow(connection: sqlite3.Connection, name: str, version: int | None) -> str | None:
    """The JSON text of a workflow definition, or None."""
    row = connection.execute(
        "SELECT body FROM workflow_def WHERE name = :name AND (:version IS NULL OR version = :version) "
        "ORDER BY version DESC LIMIT 1",
        {"name": name, "version": version},
    ).fetchone()
    return None if row is None else str(row[0])


def workflow_body(connection: sqlite3.Connection, name: str, version: int | None) -> str:
    """The JSON text of a workflow definition that must be there."""
    body = find_workflow(connection, name, version)
    if body is None:
        wanted = name if version is None else f"{name} version {version}"
        raise OrchestratorNotFound(f"no workflow definition {wanted}: register it first")
    return body


def workflow_versions(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """The versions of every workflow, oldest first, by name."""
    found: dict[str, list[int]] = {}
    for name, version in connection.execute("SELECT name, version FROM workflow_def ORDER BY name, version"):
        found.setdefault(name, []).append(version)
    return found


def taskdefs_of(connection: sqlite3.Connection, definition: WorkflowDefinition) -> dict[str, Json]:
    """The TaskDefs that a workflow's steps have, by name."""
    names = sorted({step.name for step in definition.walk()})
    rows = connection.execute(
        f"SELECT name, body FROM taskdef WHERE name IN ({', '.join('?' * len(names))})", names
    )
    return {row["name"]: json.loads(row["body"]) for row in rows}
