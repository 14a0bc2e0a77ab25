"""Assembles workers and maps on a backend.

The command line, the tests' workers and `perago.testing` all use these functions, so that they run the same checks and
use the same sizes and timeouts.  Adapters and Spark are imported inside functions, so that `perago check` stays fast.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from perago.backend import (
    Backend,
    for_short_run,
)
from perago.declare.run_steps import targets_of
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, install_extra
from perago.protocol.ledger import NOTHING_FORCED, Recompute
from perago.settings import Settings

if TYPE_CHECKING:
    from perago.lake.base import ReadableLake
    from perago.runtime.attempt.context import Observer
    from perago.runtime.plan.planner import Planner
    from perago.runtime.worker.plan import WorkerPlan
    from perago.spark.map_engine import SparkEngine


ROOM_FOR_THE_WORKSPACE = 4096
"""The number of bytes in an output that are reserved for everything except the body's result."""


def build_archive_for_next_run(settings: Settings, tasks: Sequence[TaskDefinition]) -> None:
    """Build Spark's class archive in the background after a short run, so that the next session starts faster.

    Does nothing if the archive already exists.
    """
    if any(task.kind == "spark" for task in tasks):
        from perago.spark.appcds import make_in_background
        from perago.spark.config import is_quick

        if is_quick(settings):
            make_in_background(os.environ)


# --- a worker --------------------------------------------------------------------------------------------------------


def prepare_executors(servers: Backend) -> None:
    """Start this process's fork server. Call this before any task is loaded and before any thread is started."""
    from perago.runtime.worker.fork_server import prepare

    prepare(servers.import_adapters)


def assemble_worker(
    servers: Backend,
    targets: Sequence[str],
    tasks: Sequence[TaskDefinition],
    *,
    slots: int,
    passes_logs: bool = False,
    observe: Observer | None = None,
) -> WorkerPlan:
    """Return the plan for a worker that runs `tasks`, which are all or some of the tasks in the modules `targets`.

    Raises an error if a task cannot work with these settings or on this backend.  With `passes_logs`, executors send
    their log lines to the supervisor.
    """
    from perago.runtime.worker.executor import ExecutorSpec, no_observer
    from perago.runtime.worker.plan import WorkerPlan, check_tasks

    check_tasks(servers.settings, tasks)
    servers.check_places(tasks)
    by_name = {task.name: task for task in tasks}
    spec = ExecutorSpec(
        servers.for_tasks(tasks),
        targets_of(targets, tasks),
        tuple(by_name),
        max_result_bytes(),
        observe or no_observer,
        passes_logs,
    )
    return WorkerPlan(by_name, slots, spec)


def assemble_run(
    servers: Backend,
    targets: Sequence[str],
    tasks: Sequence[TaskDefinition],
    *,
    jobs: int,
    side_by_side: int | None,
    recompute: Recompute = NOTHING_FORCED,
) -> WorkerPlan:
    """Return the plan for a run's worker.

    The worker has `jobs` slots, but no more than the number of steps that can run `side_by_side`, if known.  It does the
    work of `recompute` although nothing has changed.
    """
    slots = min(jobs, side_by_side or jobs)
    plan = assemble_worker(servers, targets, tasks, slots=slots, passes_logs=True)
    return replace(plan, spec=replace(plan.spec, recompute=recompute))


@contextmanager
def open_planner(
    lake: ReadableLake, tasks: Sequence[TaskDefinition], recompute: Recompute = NOTHING_FORCED
) -> Iterator[Planner]:
    """Open a planner for one run with these tasks.  Its orchestrator is in a temporary folder, and is removed afterwards."""
    from perago.backend import open_scratch_orchestrator
    from perago.runtime.plan.planner import PlanClock, Planner

    clock = PlanClock()
    with (
        tempfile.TemporaryDirectory(prefix="perago-plan-") as folder,
        closing(open_scratch_orchestrator(Path(folder), clock, clock.sleep)) as orchestrator,
    ):
        yield Planner(lake, orchestrator, clock, {task.name: task for task in tasks}, recompute)


def check_pyspark(what: str) -> None:
    """Raise `RuntimeConfigError` if PySpark, which is an extra, is not installed."""
    if find_spec("pyspark") is None:
        raise RuntimeConfigError(f"{what} needs PySpark: run `{install_extra('spark')}`")


def on_spark(plan: WorkerPlan) -> WorkerPlan:
    """Return the plan with its plain tasks moved to Spark's executors.

    Spark tasks stay in local processes.  A plan without plain tasks is returned unchanged.  Raises `RuntimeConfigError`
    if PySpark is missing, if the executors cannot reach the embedded servers, or if the first executor does not
    become ready.
    """
    check_pyspark("--engine spark")
    from perago.runtime.worker.hosted.link import Hosted
    from perago.spark.config import runs_here
    from perago.spark.master import check_master
    from perago.spark.worker_engine import SparkJobs

    settings, plain = plan.settings, [name for name, task in plan.tasks.items() if task.kind == "plain"]
    if not plain:
        return plan
    check_master(settings.spark_master)
    if plan.spec.servers.embedded and not runs_here(settings.spark_master):
        raise RuntimeConfigError(
            "the embedded lake and orchestrator are files of this machine, which the executors of "
            f"{settings.spark_master} do not share: leave out --local, or set PERAGO_SPARK_MASTER to a local master"
        )
    targets = executor_targets(settings, plan.spec.targets, [plan.tasks[name] for name in plain])
    spec = replace(plan.spec, targets=targets, tasks=tuple(plain))
    # The built-in tasks are part of Perago, which the executors have.
    modules = [plan.tasks[name].fn.__module__ for name in plain if not plan.tasks[name].run_step]
    engine = Hosted(SparkJobs(settings, modules), spec, name=f"Spark at {settings.spark_master}")
    engine.check()
    return replace(plan, engine=engine)


def executor_targets(
    settings: Settings, targets: Sequence[str], tasks: Sequence[TaskDefinition]
) -> tuple[str, ...]:
    """Return the targets from which Spark executors load these tasks.

    Executors on this machine have a different current folder.  Others do not have the files: they get the modules.
    """
    from perago.spark.config import runs_here

    if runs_here(settings.spark_master):
        return tuple(str(Path(one).absolute()) if one.endswith(".py") else one for one in targets)
    return tuple(dict.fromkeys(task.fn.__module__ for task in tasks))


def max_result_bytes() -> int:
    """Return Conductor's size limit for a result. The embedded orchestrator applies the same limit."""
    from perago.orchestrator.conductor.orchestrator import MAX_OUTPUT_BYTES

    return MAX_OUTPUT_BYTES - ROOM_FOR_THE_WORKSPACE


# --- a map -----------------------------------------------------------------------------------------------------------


def check_map(servers: Backend) -> None:
    """Raise `RuntimeConfigError` if the Spark master cannot be one, or if its executors cannot reach the map's lake."""
    from perago.spark.config import runs_here
    from perago.spark.master import check_master

    settings = servers.settings
    check_master(settings.spark_master)
    if servers.embedded and not runs_here(settings.spark_master):
        raise RuntimeConfigError(
            f"the embedded lake is a folder of this machine, which the executors of {settings.spark_master} do not share: "
            "add --remote to work on lakeFS, or set PERAGO_SPARK_MASTER to a local master"
        )


def open_engine(settings: Settings, task: TaskDefinition) -> SparkEngine:
    """Return the Spark engine that runs the rows of a map of this task."""
    from perago.spark.map_engine import SparkEngine

    return SparkEngine(for_short_run(settings), [task.fn.__module__])
