"""The one place that turns settings into adapters, and tasks into a worker.

    Embedded     the lake and an orchestrator below a root
    Real         lakeFS and Conductor

Either is a value that can be pickled: a worker takes it along to its executors, and each process opens its own ports.
The command line, the tests' workers and `perago.testing` all come here, so that they make the same checks and have the same
sizes and time-outs.  Nothing else imports an adapter.  SDKs are imported only when they are needed, so that
`perago check` stays quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from perago.backend import (
    open_conductor,
    open_lakefs,
    open_local_lake,
    open_local_orchestrator,
    open_read_only_orchestrator,
)
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, install_extra
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.runtime.attempt.place import OpenPlace, in_workdir
from perago.runtime.runs.record import orchestrator_file
from perago.settings import Settings

if TYPE_CHECKING:
    from perago.orchestrator.local.orchestrator import LocalOrchestrator
    from perago.orchestrator.local.resume import Recording
    from perago.runtime.attempt.context import Observer
    from perago.runtime.worker.plan import WorkerPlan
    from perago.spark.map_engine import SparkEngine


ROOM_FOR_THE_WORKSPACE = 4096
"""Bytes of an output that are not the body's result."""


# --- which servers ---------------------------------------------------------------------------------------------------


class _Places:
    """Where bodies work on one kind of servers.  Spark is brought in only where a task needs it."""

    __slots__ = ()
    settings: Settings
    embedded: ClassVar[bool]

    def check_places(self, tasks: Sequence[TaskDefinition]) -> None:
        """Refuse tasks that cannot work where their placement puts them; to be called before anything is polled."""
        if any(task.kind == "spark" for task in tasks):
            from perago.spark.places import check_placement

            check_placement(tasks, self.settings, embedded=self.embedded)

    def open_places(self, tasks: Sequence[TaskDefinition]) -> OpenPlace:
        """Where the bodies of these tasks work."""
        self.check_places(tasks)
        if all(task.kind == "plain" for task in tasks):
            return in_workdir
        from perago.spark.places import spark_places

        return spark_places(self.settings, tasks, embedded=self.embedded)


@dataclass(frozen=True, slots=True)
class Embedded(_Places):
    """The embedded lake of a root with its orchestrator, or with that of one run, which has a file of its own."""

    settings: Settings
    run: str | None = None
    embedded: ClassVar[bool] = True

    def working_in(self, folder: Path) -> Embedded:
        """The same, for an executor whose workdirs are below that folder."""
        return replace(self, settings=replace(self.settings, workspace_root=folder))

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        """Both, for this process."""
        return self.open_lake(), self._open_orchestrator()

    def bring_adapters(self) -> None:
        """Import what opening the ports would import."""
        import perago.lake.local.lake
        import perago.orchestrator.local.orchestrator  # noqa: F401

    def open_lake(self) -> Lake:
        """The lake, for this process."""
        return open_local_lake(self.settings)

    def of_run(self, run_id: str) -> Embedded:
        """The same lake, with the run's orchestrator."""
        return replace(self, run=run_id, settings=of_a_run(self.settings))

    def for_tasks(self, tasks: Sequence[TaskDefinition]) -> Embedded:
        """The same: no time that a publish budget gives is spent here."""
        return self

    def open_read_only(self) -> Orchestrator | None:
        """The orchestrator as it stands, if there is one: looking makes no file and changes none."""
        if self.run is None:
            return open_read_only_orchestrator(self.settings.root / "orchestrator.db")
        return open_read_only_orchestrator(orchestrator_file(self.settings.root, self.run))

    def take_over(self, workflow_id: str) -> None:
        """Free a workflow from a process that is known to be dead: nothing else would for a while."""
        with closing(self._open_orchestrator()) as orchestrator:
            orchestrator.take_over(workflow_id, "the process that ran it is gone")

    def recording(self, workflow_id: str, step: str) -> Recording:
        """What a workflow did before a step."""
        with closing(self._open_orchestrator()) as orchestrator:
            return orchestrator.recording(workflow_id, step)

    def start_from(self, recorded: Recording, branches: Mapping[str, Mapping[str, str]]) -> str:
        """Start a workflow at that step, on other branches; returns its id."""
        with closing(self._open_orchestrator()) as orchestrator:
            return orchestrator.start_from(recorded, branches)

    def _open_orchestrator(self) -> LocalOrchestrator:
        if self.run is None:
            return open_local_orchestrator(self.settings)
        return open_local_orchestrator(self.settings, orchestrator_file(self.settings.root, self.run))


@dataclass(frozen=True, slots=True)
class Real(_Places):
    """lakeFS and Conductor; `completion_seconds` is the longest time that a publish budget gives a result."""

    settings: Settings
    completion_seconds: float | None = None
    embedded: ClassVar[bool] = False

    def working_in(self, folder: Path) -> Real:
        """The same, for an executor whose workdirs are below that folder."""
        return replace(self, settings=replace(self.settings, workspace_root=folder))

    def open_ports(self) -> tuple[Lake, Orchestrator]:
        """Both, for this process."""
        return self.open_lake(), open_conductor(self.settings, completion_seconds=self.completion_seconds)

    def bring_adapters(self) -> None:
        """Import what opening the ports would import."""
        import perago.lake.lakefs.lake
        import perago.orchestrator.conductor.http
        import perago.orchestrator.conductor.orchestrator  # noqa: F401

    def open_lake(self) -> Lake:
        """lakeFS, for this process."""
        return open_lakefs(self.settings)

    def of_run(self, run_id: str) -> Real:
        """The same: all runs share them."""
        return replace(self, settings=of_a_run(self.settings))

    def for_tasks(self, tasks: Sequence[TaskDefinition]) -> Real:
        """The same, with the times that these tasks' publish budgets give."""
        budgets = (task.controls.publish_budget for task in tasks)
        seconds = [budget.conductor_completion_timeout_seconds for budget in budgets if budget]
        return replace(self, completion_seconds=max(seconds, default=None))

    def open_read_only(self) -> Orchestrator | None:
        """Conductor."""
        return open_conductor(self.settings)

    def take_over(self, workflow_id: str) -> None:
        """Nothing: Conductor ends the attempts of the dead by their leases."""


def for_short_run(settings: Settings) -> Settings:
    """Settings for work that ends soon: quick Spark sessions, unless they say otherwise."""
    return replace(settings, spark_session="quick") if settings.spark_session == "auto" else settings


def of_a_run(settings: Settings) -> Settings:
    """Settings for the worker of one run: a wrong input ends it at once, since every try would have the same code."""
    return replace(for_short_run(settings), wrong_input="terminal")


def build_archive_for_next_run(settings: Settings, tasks: Sequence[TaskDefinition]) -> None:
    """After short work: begin to make what lets the next Spark session start sooner, if it is not there yet."""
    if any(task.kind == "spark" for task in tasks):
        from perago.spark.appcds import make_in_background
        from perago.spark.config import is_quick

        if is_quick(settings):
            make_in_background(os.environ)


# --- a worker --------------------------------------------------------------------------------------------------------


def prepare_executors(servers: Embedded | Real) -> None:
    """Let a worker of this process start its executors quickly; before it reads any task or begins a thread."""
    from perago.runtime.worker.fork_server import prepare

    prepare(servers.bring_adapters)


def assemble_worker(
    servers: Embedded | Real,
    targets: Sequence[str],
    tasks: Sequence[TaskDefinition],
    *,
    slots: int,
    passes_logs: bool = False,
    observe: Observer | None = None,
) -> WorkerPlan:
    """A worker for `tasks`, which are some or all of the modules `targets`; refuses what could not work there.

    With `passes_logs` the executors' log is the supervisor's.
    """
    from perago.runtime.worker.executor import ExecutorSpec, no_observer
    from perago.runtime.worker.plan import WorkerPlan, check_tasks

    check_tasks(servers.settings, tasks)
    servers.check_places(tasks)
    by_name = {task.name: task for task in tasks}
    spec = ExecutorSpec(
        servers.for_tasks(tasks),
        tuple(targets),
        tuple(by_name),
        max_result_bytes(),
        observe or no_observer,
        passes_logs,
    )
    return WorkerPlan(by_name, slots, spec)


def check_pyspark(what: str) -> None:
    """Raise `RuntimeConfigError` if PySpark, which is an extra, is not installed."""
    if find_spec("pyspark") is None:
        raise RuntimeConfigError(f"{what} needs PySpark: run `{install_extra('spark')}`")


def on_spark(plan: WorkerPlan, py_files: Sequence[Path]) -> WorkerPlan:
    """The same worker, whose plain tasks run on Spark's executors; refuses what could not work there.

    Spark tasks stay in processes beside it.  Without a plain task all of it stays as it is.
    """
    check_pyspark("--engine spark")
    from perago.runtime.worker.hosted.link import Hosted
    from perago.spark.config import runs_here
    from perago.spark.worker_engine import SparkJobs

    settings, plain = plan.settings, [name for name, task in plan.tasks.items() if task.kind == "plain"]
    if not plain:
        return plan
    if plan.spec.servers.embedded and not runs_here(settings.spark_master):
        raise RuntimeConfigError(
            "the embedded lake and orchestrator are files of this machine, which the executors of "
            f"{settings.spark_master} do not share: leave out --local, or set PERAGO_SPARK_MASTER to a local master"
        )
    # Executors have another current folder.
    targets = [str(Path(one).absolute()) if one.endswith(".py") else one for one in plan.spec.targets]
    spec = replace(plan.spec, targets=tuple(targets), tasks=tuple(plain))
    engine = Hosted(SparkJobs(settings, py_files), spec, name=f"Spark at {settings.spark_master}")
    engine.check()
    return replace(plan, engine=engine)


def max_result_bytes() -> int:
    """The largest result that Conductor takes; the embedded orchestrator keeps to it too, so both end the same."""
    from perago.orchestrator.conductor.orchestrator import MAX_OUTPUT_BYTES

    return MAX_OUTPUT_BYTES - ROOM_FOR_THE_WORKSPACE


# --- a map -----------------------------------------------------------------------------------------------------------


def check_map(servers: Embedded | Real) -> None:
    """Raise `RuntimeConfigError` if the executors that run a map cannot reach its lake."""
    from perago.spark.config import runs_here

    settings = servers.settings
    if servers.embedded and not runs_here(settings.spark_master):
        raise RuntimeConfigError(
            f"the embedded lake is a folder of this machine, which the executors of {settings.spark_master} do not share: "
            "add --remote to work on lakeFS, or set PERAGO_SPARK_MASTER to a local master"
        )


def open_engine(settings: Settings, py_files: Sequence[Path]) -> SparkEngine:
    """What runs the rows of a map."""
    from perago.spark.map_engine import SparkEngine

    return SparkEngine(for_short_run(settings), py_files)
