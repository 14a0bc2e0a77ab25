"""Registers declared tasks and workflow files with an orchestrator.

TaskDefs: only the fields that a declaration sets are changed; other fields on the server stay.

Workflows: a definition replaces the one of the same name and version.  Others stay, and running workflows are not affected,
since each keeps the definition it was started with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef, difference, merged
from perago.errors import RuntimeConfigError
from perago.orchestrator.base import Orchestrator
from perago.workflow.model.diff import difference as workflow_difference
from perago.workflow.model.requirements import task_names, version_of

Action = Literal["create", "update", "keep"]

_KEPT = ("createTime", "createdBy")
"""Fields that an update on Conductor would otherwise lose."""


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of registering one task; `fields` are (path, new, old)."""

    name: str
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: dict[str, Any]


def plan_changes(server: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[Change]:
    """Compare the declared TaskDefs with the server's."""
    return [_change(build_taskdef(task), server.taskdef(task.name)) for task in tasks]


def apply_changes(server: Orchestrator, changes: Sequence[Change]) -> None:
    """Send the definitions that differ; makes no call if none does."""
    wanted = [change.definition for change in changes if change.action != "keep"]
    if wanted:
        server.register_taskdefs(wanted)


def _change(wanted: dict[str, Any], actual: Mapping[str, Any] | None) -> Change:
    if actual is None:
        return Change(wanted["name"], "create", (), wanted)
    fields = tuple(difference(wanted, actual))
    return Change(wanted["name"], "update" if fields else "keep", fields, merged(wanted, actual))


@dataclass(frozen=True, slots=True)
class WorkflowChange:
    """The effect of registering one workflow; `fields` are (path, new, old)."""

    name: str
    version: int
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: Mapping[str, Any]


def registered_names(server: Orchestrator, definition: Mapping[str, Any]) -> set[str]:
    """Return the workflow's tasks that the server already knows, regardless of whose workers run them."""
    return {name for name in task_names(definition) if server.taskdef(name) is not None}


def plan_workflows(
    server: Orchestrator, definitions: Mapping[str, Mapping[str, Any]]
) -> list[WorkflowChange]:
    """Compare definitions, by file, with the server's.  Raises `RuntimeConfigError` for duplicates."""
    _refuse_duplicates(definitions)
    return [
        _workflow_change(one, server.workflow_definition(one["name"], version_of(one)))
        for one in definitions.values()
    ]


def apply_workflows(server: Orchestrator, changes: Sequence[WorkflowChange]) -> None:
    """Send the definitions that differ; makes no call if none does."""
    for change in changes:
        if change.action != "keep":
            server.register_workflow(change.definition)


def _workflow_change(wanted: Mapping[str, Any], actual: Mapping[str, Any] | None) -> WorkflowChange:
    name, version = wanted["name"], version_of(wanted)
    if actual is None:
        return WorkflowChange(name, version, "create", (), wanted)
    fields = tuple(workflow_difference(wanted, actual))
    kept = {field: actual[field] for field in _KEPT if actual.get(field)}
    return WorkflowChange(name, version, "update" if fields else "keep", fields, {**kept, **wanted})


def _refuse_duplicates(definitions: Mapping[str, Mapping[str, Any]]) -> None:
    files: dict[tuple[str, int], str] = {}
    for file, definition in definitions.items():
        name, version = definition["name"], version_of(definition)
        if (name, version) in files:
            raise RuntimeConfigError(
                f"{files[name, version]} and {file} both define version {version} of the workflow {name!r}: "
                "give one another name or version"
            )
        files[name, version] = file
