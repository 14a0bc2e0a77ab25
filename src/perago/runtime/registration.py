"""Registers declared tasks and workflow files with an orchestrator.

TaskDefs: only the fields that a declaration sets are changed; other fields on the server keep their values.

Workflows: a definition replaces the one with the same name and version.  Other versions are not changed, and neither
are running workflows, since each keeps the definition that it was started with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef, difference, merge_taskdef
from perago.errors import RuntimeConfigError
from perago.orchestrator.base import Orchestrator
from perago.workflow.model.diff import difference as workflow_difference
from perago.workflow.model.requirements import task_names, version_of

Action = Literal["create", "update", "keep"]

_KEPT = ("createTime", "createdBy")
"""Fields that Conductor would otherwise lose in an update."""


@dataclass(frozen=True, slots=True)
class TaskDefChange:
    """The effect of registering one task.  `fields` has (path, new, old) for each difference."""

    name: str
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: dict[str, Any]


def plan_changes(server: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[TaskDefChange]:
    """Compare the declared TaskDefs with the server's."""
    return [_change(build_taskdef(task), server.taskdef(task.name)) for task in tasks]


def apply_changes(server: Orchestrator, changes: Sequence[TaskDefChange]) -> None:
    """Send the definitions that differ.  Makes no call if there are none."""
    wanted = [change.definition for change in changes if change.action != "keep"]
    if wanted:
        server.register_taskdefs(wanted)


def _change(wanted: dict[str, Any], actual: Mapping[str, Any] | None) -> TaskDefChange:
    if actual is None:
        return TaskDefChange(wanted["name"], "create", (), wanted)
    fields = tuple(difference(wanted, actual))
    return TaskDefChange(
        wanted["name"], "update" if fields else "keep", fields, merge_taskdef(wanted, actual)
    )


@dataclass(frozen=True, slots=True)
class WorkflowChange:
    """The effect of registering one workflow.  `fields` has (path, new, old) for each difference."""

    name: str
    version: int
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: Mapping[str, Any]


def registered_names(server: Orchestrator, definition: Mapping[str, Any]) -> set[str]:
    """Return the workflow's tasks that the server already knows, no matter whose workers run them."""
    return {name for name in task_names(definition) if server.taskdef(name) is not None}


def plan_workflows(
    server: Orchestrator, definitions: Mapping[str, Mapping[str, Any]]
) -> list[WorkflowChange]:
    """Compare definitions, keyed by file, with the server's.

    Raises `RuntimeConfigError` if two files define the same version of a workflow.
    """
    _refuse_duplicates(definitions)
    return [
        _workflow_change(one, server.workflow_definition(one["name"], version_of(one)))
        for one in definitions.values()
    ]


def apply_workflows(server: Orchestrator, changes: Sequence[WorkflowChange]) -> None:
    """Send the definitions that differ.  Makes no call if there are none."""
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
