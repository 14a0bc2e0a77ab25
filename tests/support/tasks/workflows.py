"""Workflow JSON in Conductor's form, by its step types."""

from __future__ import annotations

from typing import Any


def simple(reference: str, **fields: Any) -> dict[str, Any]:
    """Return a SIMPLE step."""
    return {"name": "work", "taskReferenceName": reference, "type": "SIMPLE", **fields}


def switch(reference: str, **fields: Any) -> dict[str, Any]:
    """Return a SWITCH with one case."""
    return {
        "name": "switch",
        "taskReferenceName": reference,
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": "x",
        "decisionCases": {"a": [simple(f"{reference}_a")]},
        **fields,
    }


def loop(reference: str, *body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a DO_WHILE of two iterations."""
    return {
        "name": "loop",
        "taskReferenceName": reference,
        "type": "DO_WHILE",
        "loopCondition": f"$.{reference}.iteration < 2",
        "loopOver": list(body),
        **fields,
    }


def fork(reference: str, *branches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a FORK_JOIN."""
    return {"name": "fork", "taskReferenceName": reference, "type": "FORK_JOIN", "forkTasks": list(branches)}


def join(reference: str, *on: str) -> dict[str, Any]:
    """Return a JOIN."""
    return {"name": "join", "taskReferenceName": reference, "type": "JOIN", "joinOn": list(on)}


def noop(reference: str) -> dict[str, Any]:
    """Return a step that does nothing, to end an arm before its JOIN."""
    return {"name": "done", "taskReferenceName": reference, "type": "NOOP"}


def workflow(*tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a workflow named `flow`."""
    return {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": list(tasks), **fields}
