"""What a worker is made of: its tasks, its slots and the times that its publish budgets ask for.

What must hold before a worker starts; each failure is one line with its remedy.

Everything here would otherwise show at the first attempt, on a server's page, hours later.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.policies import POLICIES, REUSE, SUPERSEDE, declared
from perago.runtime.registration import Change, apply_changes, plan_changes
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import ExecutorFactory
from perago.runtime.worker.local_executor import Processes
from perago.runtime.worker.self_check import ask_lake
from perago.settings import Settings

LEAST_SENDING_SECONDS = 30.0


def new_worker_id() -> str:
    """Who polls, as the orchestrator shows it."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class SlotPool:
    """Slots of one kind: so many executors for these tasks, and what starts them."""

    tasks: tuple[str, ...]
    slots: int
    launch: ExecutorFactory


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker: `slots` executors for `tasks`, by name, made as `spec` says.

    With an `engine` that hosts executors elsewhere, plain tasks run there, and Spark tasks in as many processes beside it.
    """

    tasks: Mapping[str, TaskDefinition]
    slots: int
    spec: ExecutorSpec
    worker_id: str = field(default_factory=new_worker_id)
    servers: Sequence[str] = ()
    """The lake and the orchestrator, as they call themselves."""
    engine: ExecutorFactory | None = None

    def __str__(self) -> str:
        """The worker in a line."""
        beside = f", with {' and '.join(self.servers)}" if self.servers else ""
        where = f" of {self.engine}" if self.engine is not None else ""
        return f"{self.worker_id}: {', '.join(self.tasks)} on {self.slots} slots{where}{beside}"

    @property
    def crews(self) -> tuple[SlotPool, ...]:
        """The kinds of slots that it has."""
        if self.engine is None:
            return (SlotPool(tuple(self.tasks), self.slots, Processes(self.spec)),)
        plain = tuple(name for name, task in self.tasks.items() if task.kind == "plain")
        spark = tuple(name for name in self.tasks if name not in plain)
        beside = Processes(replace(self.spec, tasks=spark))
        crews = (SlotPool(plain, self.slots, self.engine), SlotPool(spark, self.slots, beside))
        return tuple(slot_pool for slot_pool in crews if slot_pool.tasks)

    @property
    def settings(self) -> Settings:
        """The settings that the executors get too."""
        return self.spec.settings

    @property
    def grace_seconds(self) -> float:
        """The longest shutdown grace that a task's publish budget asks for."""
        budgets = (task.controls.publish_budget for task in self.tasks.values())
        return max((budget.worker_shutdown_grace_seconds for budget in budgets if budget), default=0.0)

    @property
    def kill_after_seconds(self) -> float | None:
        """How long a drain may take before executors are killed: what the setting says, else the longest grace.

        None, where there is neither, means as long as the attempts need.
        """
        said = self.settings.shutdown_force_kill_after
        return said if said is not None else self.grace_seconds or None

    @property
    def sending_seconds(self) -> float:
        """How long a drain waits for results to be taken, once all attempts have ended."""
        return max(LEAST_SENDING_SECONDS, self.grace_seconds)


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
