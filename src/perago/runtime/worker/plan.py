"""A worker's plan (its tasks, slots and time limits), and the checks that are made before it starts.

A failed check is reported in one line, with its remedy.  Without these checks, the errors would not show up until the first
attempt, hours later, in a server's web UI.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, RuntimeConfigError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import Orchestrator
from perago.protocol.policies import REUSE, SUPERSEDE, declaration_text
from perago.runtime.registration import TaskDefChange, apply_changes, plan_changes
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import ExecutorFactory
from perago.runtime.worker.local_executor import Processes
from perago.runtime.worker.self_check import ask_lake
from perago.settings import Settings

LEAST_SENDING_SECONDS = 30.0


def new_worker_id() -> str:
    """Return the worker id that the orchestrator shows: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class SlotPool:
    """Slots of one kind: their tasks, their number and the factory that starts their executors."""

    tasks: tuple[str, ...]
    slots: int
    launch: ExecutorFactory


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The plan of one worker: `slots` executors, configured by `spec`, for `tasks` (keyed by name).

    If an `engine` hosts executors elsewhere, plain tasks run there, and Spark tasks run in the same number of local
    processes.
    """

    tasks: Mapping[str, TaskDefinition]
    slots: int
    spec: ExecutorSpec
    worker_id: str = field(default_factory=new_worker_id)
    servers: Sequence[str] = ()
    """Descriptions of the lake and the orchestrator."""
    engine: ExecutorFactory | None = None

    def __str__(self) -> str:
        """Describe the worker in one line."""
        beside = f", with {' and '.join(self.servers)}" if self.servers else ""
        where = f" of {self.engine}" if self.engine is not None else ""
        return f"{self.worker_id}: {', '.join(self.tasks)} on {self.slots} slots{where}{beside}"

    @property
    def slot_pools(self) -> tuple[SlotPool, ...]:
        """The worker's slot pools."""
        if self.engine is None:
            return (SlotPool(tuple(self.tasks), self.slots, Processes(self.spec)),)
        plain = tuple(name for name, task in self.tasks.items() if task.kind == "plain")
        spark = tuple(name for name in self.tasks if name not in plain)
        beside = Processes(replace(self.spec, tasks=spark))
        pools = (SlotPool(plain, self.slots, self.engine), SlotPool(spark, self.slots, beside))
        return tuple(slot_pool for slot_pool in pools if slot_pool.tasks)

    @property
    def settings(self) -> Settings:
        """The settings for the worker and its executors."""
        return self.spec.settings

    @property
    def grace_seconds(self) -> float:
        """The longest grace period for shutdown among the tasks' publish budgets."""
        budgets = (task.controls.publish_budget for task in self.tasks.values())
        return max((budget.worker_shutdown_grace_seconds for budget in budgets if budget), default=0.0)

    @property
    def kill_after_seconds(self) -> float | None:
        """Seconds after which a drain kills executors: the setting, or else the longest grace period.

        None means that there is no limit.
        """
        configured = self.settings.shutdown_force_kill_after
        return configured if configured is not None else self.grace_seconds or None

    @property
    def sending_seconds(self) -> float:
        """Time that a drain waits for results to be accepted after all attempts have ended."""
        return max(LEAST_SENDING_SECONDS, self.grace_seconds)


def check_tasks(settings: Settings, tasks: Iterable[TaskDefinition]) -> None:
    """Raise `RuntimeConfigError` if a task cannot use the fence that the settings require."""
    for task in tasks:
        spec = task.workspace
        if (
            settings.fence == "hard"
            and spec is not None
            and not spec.read_only
            and not spec.policy.fits_hard_fence
        ):
            raise RuntimeConfigError(
                f"PERAGO_FENCE=hard, but task {task.name!r} replaces abandoned publications, which no server can "
                f'fence: declare WorkspaceSpec({declaration_text(SUPERSEDE)}) or "{REUSE.name}", or set PERAGO_FENCE=auto'
            )


def check_lake(lake: ReadableLake) -> None:
    """Raise `RuntimeConfigError` if the lake does not respond or rejects the keys."""
    try:
        ask_lake(lake)
    except LakeError as error:
        raise RuntimeConfigError(
            f"the lake cannot be used: {error}; check LAKECTL_SERVER_ENDPOINT_URL and the LAKECTL_CREDENTIALS_*"
        ) from error


def register_missing_taskdefs(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[str]:
    """Register TaskDefs that are missing on the orchestrator or differ from the tasks, and return their names."""
    changes = _needed_changes(orchestrator, tasks)
    apply_changes(orchestrator, changes)
    return [change.name for change in changes]


def check_taskdefs(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], *, remedy: str) -> None:
    """Raise `RuntimeConfigError` if TaskDefs are missing on the orchestrator or differ from the tasks.

    `remedy` is the command that registers them.
    """
    changes = _needed_changes(orchestrator, tasks)
    if changes:
        raise RuntimeConfigError(
            f"{'; '.join(map(_describe, changes))}. Run `{remedy}`, or start with --register"
        )


def _needed_changes(orchestrator: Orchestrator, tasks: Sequence[TaskDefinition]) -> list[TaskDefChange]:
    return [change for change in plan_changes(orchestrator, tasks) if change.action != "keep"]


def _describe(change: TaskDefChange) -> str:
    if change.action == "create":
        return f"TaskDef {change.name!r} is not registered"
    fields = ", ".join(f"{path} is {old!r}, declared {new!r}" for path, new, old in change.fields[:3])
    more = f" and {len(change.fields) - 3} more" if len(change.fields) > 3 else ""
    return f"TaskDef {change.name!r} differs: {fields}{more}"
