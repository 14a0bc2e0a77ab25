"""Making an orchestrator's TaskDefs those of the declared tasks.

The rule: only the fields that a declaration sets are changed; what somebody else set on the server stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef, difference, merged

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
