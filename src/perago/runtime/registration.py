"""Making an orchestrator's TaskDefs those of the declared tasks.

The rule: only the fields that a declaration sets are changed; what somebody else set on the server stays.

Making an orchestrator's workflow definitions those of the files.

The rule: a definition goes over the one of the same name and version; others stay, and so do workflows that are running,
since each keeps the definition that it was started with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef, difference, merged
from perago.errors import RuntimeConfigError
from perago.workflow.model.definition import task_names, version_of
from perago.workflow.model.diff import difference as workflow_difference

Action = Literal["create", "update", "keep"]


class TaskDefs(Protocol):
    """The part of the orchestrator that registering needs."""

    def taskdef(self, name: str) -> Any:
        """The registered TaskDef, or None."""

    def register_taskdefs(self, definitions: Sequence[Any]) -> None:
        """Create or update TaskDefs."""


@dataclass(frozen=True, slots=True)
class Change:
    """What registering one task does; `fields` are (path, new, old)."""

    name: str
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: dict[str, Any]


def plan_changes(server: TaskDefs, tasks: Sequence[TaskDefinition]) -> list[Change]:
    """Compare the declared TaskDefs with the server's."""
    return [_change(build_taskdef(task), server.taskdef(task.name)) for task in tasks]


def apply_changes(server: TaskDefs, changes: Sequence[Change]) -> None:
    """Send what differs; nothing is sent where nothing does."""
    wanted = [change.definition for change in changes if change.action != "keep"]
    if wanted:
        server.register_taskdefs(wanted)


def _change(wanted: dict[str, Any], actual: dict[str, Any] | None) -> Change:
    if actual is None:
        return Change(wanted["name"], "create", (), wanted)
    fields = tuple(difference(wanted, actual))
    return Change(wanted["name"], "update" if fields else "keep", fields, merged(wanted, actual))


_KEPT = ("createTime", "createdBy")
"""What an update on Conductor would lose: when a definition was created, and by whom."""


class Definitions(Protocol):
    """The part of the orchestrator that registering needs."""

    def workflow_definition(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The registered definition, or None."""

    def taskdef(self, name: str) -> Mapping[str, Any] | None:
        """The registered TaskDef, or None."""

    def register_workflow(self, definition: Mapping[str, Any]) -> None:
        """Create or update one."""


@dataclass(frozen=True, slots=True)
class WorkflowChange:
    """What registering one workflow does; `fields` are (path, new, old)."""

    name: str
    version: int
    action: Action
    fields: tuple[tuple[str, Any, Any], ...]
    definition: Mapping[str, Any]


def registered_names(server: Definitions, definition: Mapping[str, Any]) -> set[str]:
    """Those of a workflow's tasks that the server knows already, whoever's workers run them."""
    return {name for name in task_names(definition) if server.taskdef(name) is not None}


def plan_workflows(server: Definitions, definitions: Mapping[str, Mapping[str, Any]]) -> list[WorkflowChange]:
    """Compare definitions, by the files that they come from, with the server's."""
    _refuse_twins(definitions)
    return [
        _workflow_change(one, server.workflow_definition(one["name"], version_of(one)))
        for one in definitions.values()
    ]


def apply_workflows(server: Definitions, changes: Sequence[WorkflowChange]) -> None:
    """Send what differs; nothing is sent where nothing does."""
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


def _refuse_twins(definitions: Mapping[str, Mapping[str, Any]]) -> None:
    files: dict[tuple[str, int], str] = {}
    for file, definition in definitions.items():
        name, version = definition["name"], version_of(definition)
        if (name, version) in files:
            raise RuntimeConfigError(
                f"{files[name, version]} and {file} both define version {version} of the workflow {name!r}: "
                "give one another name or version"
            )
        files[name, version] = file
