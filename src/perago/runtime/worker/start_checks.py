"""What must hold before a worker starts; each failure is one line with its remedy.

Everything here would otherwise show at the first attempt, on a server's page, hours later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.policies import POLICIES, REUSE, SUPERSEDE, declared
from perago.runtime.registration import Change, apply_changes, plan_changes
from perago.runtime.worker.fitness import ask_lake
from perago.settings import Settings


def check_tasks(settings: Settings, tasks: Iterable[TaskDefinition]) -> None:
    """The fence that the settings ask for is possible for every task."""
    for task in tasks:
        spec = task.workspace
        if (
            settings.fence == "hard"
            and spec is not None
            and not spec.read_only
            and not POLICIES[spec.on_abandoned].fits_hard_fence
        ):
            raise RuntimeConfigError(
                f"PERAGO_FENCE=hard, but task {task.name!r} replaces abandoned publications, which no server can "
                f'fence: declare WorkspaceSpec({declared(SUPERSEDE)}) or "{REUSE.name}", or set PERAGO_FENCE=auto'
            )


def check_lake(lake: Lake) -> None:
    """The lake answers, and knows the keys."""
    try:
        ask_lake(lake)
    except LakeError as error:
        raise RuntimeConfigError(
            f"the lake cannot be used: {error}; check LAKECTL_SERVER_ENDPOINT_URL and the LAKECTL_CREDENTIALS_*"
        ) from error


def mend_taskdefs(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[str]:
    """Make the orchestrator's TaskDefs those of the modules; returns the names of those that were not."""
    wrong = _wrong(orchestrator, tasks)
    apply_changes(orchestrator, wrong)
    return [change.name for change in wrong]


def check_taskdefs(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], *, remedy: str) -> None:
    """The orchestrator's TaskDefs are those of the modules; `remedy` is the command that makes them so."""
    wrong = _wrong(orchestrator, tasks)
    if wrong:
        raise RuntimeConfigError(f"{'; '.join(map(_told, wrong))}. Run `{remedy}`, or start with --register")


def _wrong(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[Change]:
    return [change for change in plan_changes(orchestrator, tasks) if change.action != "keep"]


def _told(change: Change) -> str:
    if change.action == "create":
        return f"TaskDef {change.name!r} is not registered"
    fields = ", ".join(f"{path} is {old!r}, declared {new!r}" for path, new, old in change.fields[:3])
    more = f" and {len(change.fields) - 3} more" if len(change.fields) > 3 else ""
    return f"TaskDef {change.name!r} differs: {fields}{more}"
