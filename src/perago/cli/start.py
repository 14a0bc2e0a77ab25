"""`perago start`: a worker for the tasks of some modules.

Exit codes: 0 after a drain in which everything in flight ended and was sent; 1 when it could not start, executors had
to be killed, or results stay in the outbox; 2 when the command line is wrong.
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.check import Targets
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import taskdef_warnings
from perago.runtime.worker.start_checks import check_lake, check_taskdefs, check_tasks
from perago.settings import Settings, load_settings

if TYPE_CHECKING:
    from perago.runtime.observe.health import Pulse
    from perago.runtime.observe.metrics import NoMetrics

log = logging.getLogger("perago.start")


class Engine(StrEnum):
    """Where attempts run."""

    PROCESS = "process"


def start(
    targets: Targets,
    slots: Annotated[int, typer.Option("-j", "--slots", min=1, help="Attempts to run at the same time.")] = 1,
    local: Annotated[bool, typer.Option("--local", help="Use the embedded lake and orchestrator.")] = False,
    register: Annotated[
        bool, typer.Option("--register", help="Register TaskDefs that are missing or differ.")
    ] = False,
    http: Annotated[
        str | None, typer.Option("--http", metavar="[HOST:]PORT", help="Serve /healthz and /metrics there.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Where local state is kept (PERAGO_ROOT).")
    ] = None,
    engine: Annotated[Engine, typer.Option("--engine", help="Where attempts run.")] = Engine.PROCESS,
) -> None:
    """Run the tasks of modules for a Conductor until SIGINT or SIGTERM; a second one kills what is in flight."""
    del engine  # one so far
    settings = load_settings(os.environ, root=root)
    tasks = load_tasks(targets)
    check_tasks(settings, tasks)
    for task in tasks:
        for text in taskdef_warnings(task):
            output.warn(text)
    with ExitStack() as opened:
        code = _start(opened, settings, tasks, _Wanted(tuple(targets), slots, local, root, register, http))
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class _Wanted:
    targets: tuple[str, ...]
    slots: int
    local: bool
    root: Path | None
    register: bool
    http: str | None

    @property
    def remedy(self) -> str:
        """The command that registers the TaskDefs where this worker looks for them."""
        where = ["--local"] if self.local else []
        if self.local and self.root is not None:
            where += ["--root", str(self.root)]
        return shlex.join(["perago", "register", *where, *self.targets])


def _start(opened: ExitStack, settings: Settings, tasks: list[TaskDefinition], wanted: _Wanted) -> int:
    # The adapters bring their SDKs along, and the runtime the process machinery: other commands go without.
    from perago.connect import check_places, max_result_bytes, open_places, open_ports
    from perago.runtime.observe.events import counting
    from perago.runtime.observe.logs import logging_to
    from perago.runtime.observe.metrics import open_metrics
    from perago.runtime.process.orphans import reaping_orphans
    from perago.runtime.worker.executor import ExecutorSpec
    from perago.runtime.worker.plan import WorkerPlan
    from perago.runtime.worker.supervisor import Supervisor

    check_places(settings, tasks, local=wanted.local)
    ports = functools.partial(
        open_ports, settings, local=wanted.local, completion_seconds=_completion_seconds(tasks)
    )
    lake, orchestrator = ports()
    opened.callback(lake.close)
    opened.callback(orchestrator.close)
    check_lake(lake)
    for name in check_taskdefs(orchestrator, tasks, remedy=wanted.remedy, mend=wanted.register):
        output.warn(f"TaskDef {name} was registered")
    places = functools.partial(open_places, settings, local=wanted.local)
    spec = ExecutorSpec(settings, wanted.targets, ports, max_result_bytes(), open_places=places)
    plan = WorkerPlan({task.name: task for task in tasks}, wanted.slots, spec)
    worker = Supervisor(plan, orchestrator, lake)
    opened.enter_context(logging_to(settings, name="supervisor"))
    opened.enter_context(reaping_orphans())
    metrics = opened.enter_context(
        open_metrics(os.environ, worker.pulse, worker_id=plan.worker_id, prometheus=wanted.http is not None)
    )
    if wanted.http is not None:
        _serve(opened, wanted.http, worker.pulse, metrics)
    return worker.run(on_event=counting(metrics))


def _serve(opened: ExitStack, where: str, pulse: Pulse, metrics: NoMetrics) -> None:
    from perago.runtime.observe.health import check
    from perago.runtime.observe.http import StatusServer, parse_address

    server = opened.enter_context(
        StatusServer(parse_address(where), health=lambda: check(pulse), metrics=metrics.exposition)
    )
    host, port = server.address
    log.info("serving /healthz and /metrics on http://%s:%d", host, port)


def _completion_seconds(tasks: list[TaskDefinition]) -> float | None:
    """The longest time that a task's publish budget gives a completion."""
    budgets = (task.controls.publish_budget for task in tasks)
    return max((budget.conductor_completion_timeout_seconds for budget in budgets if budget), default=None)
