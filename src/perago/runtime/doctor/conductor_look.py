"""Conductor: whether it answers and what it is, and whether it has the TaskDefs that modules declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perago.declare.task import TaskDefinition
from perago.errors import OrchestratorError
from perago.orchestrator.base import Orchestrator
from perago.runtime.doctor.finding import Finding
from perago.runtime.registration import Change, plan_changes

PART = "Conductor"
_URL = "CONDUCTOR_SERVER_URL"
_MOST_FIELDS = 3


def look_at_conductor(orchestrator: Orchestrator, where: str) -> Finding:
    """Whether Conductor is there."""
    try:
        return Finding(PART, "ok", f"{orchestrator.server()} at {where}")
    except OrchestratorError as error:
        cause = str(error).partition("; check ")[0]
        keys = "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
        remedy = (
            f"check {keys}"
            if keys in str(error)
            else f"check {_URL}, which ends in /api, and that Conductor is up"
        )
        return Finding(PART, "fail", f"there is no Conductor at {where} ({cause})", remedy)


def look_at_taskdefs(
    orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], targets: Sequence[str]
) -> Iterator[Finding]:
    """A line for each task that is not registered as it is declared, or one for all that are."""
    register = f"run `perago register {' '.join(targets)}`"
    try:
        changes = plan_changes(orchestrator, tasks)
    except OrchestratorError as error:
        yield Finding("TaskDefs", "fail", str(error), f"check {_URL}, and that Conductor is up")
        return
    wrong = [change for change in changes if change.action != "keep"]
    for change in wrong:
        yield Finding("TaskDefs", "fail", _told(change), register)
    if not wrong:
        yield Finding(
            "TaskDefs", "ok", f"registered as declared: {', '.join(change.name for change in changes)}"
        )


def _told(change: Change) -> str:
    if change.action == "create":
        return f"{change.name} is not registered, and a worker refuses to start without it"
    fields = ", ".join(path for path, _, _ in change.fields[:_MOST_FIELDS])
    more = f" and {len(change.fields) - _MOST_FIELDS} more" if len(change.fields) > _MOST_FIELDS else ""
    return (
        f"{change.name} is registered otherwise than declared ({fields}{more}), and a worker refuses to start"
    )
