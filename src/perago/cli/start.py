"""`perago start`: run a worker for the tasks in modules.

Exit codes: 0 after a drain in which all running attempts ended and their results were sent; 1 if the worker could not
start, executors had to be killed, or results remain in the outbox; 2 if the command line is invalid.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import Archives, Jars, Local, PyFiles, Root, Targets, spark_files, warn_about
from perago.cli.server_choice import need_servers
from perago.declare.discovery import load_tasks
from perago.declare.run_steps import with_run_steps
from perago.settings import load_settings


class Engine(StrEnum):
    """The kind of executor in which attempts run: local processes or Spark executors."""

    PROCESS = "process"
    SPARK = "spark"


class Lines(StrEnum):
    """The format of the worker's log."""

    TEXT = "text"
    JSON = "json"


def start(
    targets: Targets,
    slots: Annotated[int, typer.Option("-j", "--slots", min=1, help="How many attempts to run at once.")] = 1,
    local: Local = False,
    register: Annotated[
        bool, typer.Option("--register", help="Register TaskDefs that are missing or have changed.")
    ] = False,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="[HOST:]PORT", help="Serve /healthz and /metrics at this address."),
    ] = None,
    root: Root = None,
    engine: Annotated[
        Engine,
        typer.Option(
            "--engine",
            help="Where attempts run: in processes of this machine, or on the executors of PERAGO_SPARK_MASTER.",
        ),
    ] = Engine.PROCESS,
    no_run_steps: Annotated[
        bool,
        typer.Option(
            "--no-run-steps", help="Do not run the built-in steps that open and publish whole runs."
        ),
    ] = False,
    py_files: PyFiles = [],  # noqa: B006 - typer reads the default, and never writes it
    archives: Archives = [],  # noqa: B006
    jars: Jars = [],  # noqa: B006
    log_format: Annotated[
        Lines | None,
        typer.Option(
            "--log-format", help="Log lines for people, or one JSON object each (PERAGO_LOG_FORMAT)."
        ),
    ] = None,
) -> None:
    """Start a worker for the tasks. SIGINT or SIGTERM stops it once running attempts have ended; a second one kills them."""
    settings = load_settings(os.environ, root=root, remote=not local)
    settings = replace(settings, spark_files=spark_files(py_files, archives, jars))
    if log_format is not None:
        settings = replace(settings, log_format=log_format.value)
    if not local:
        need_servers(settings)
    # Imported here because the adapters import HTTP and S3 libraries, and the runtime imports the process machinery. Other
    # commands need neither.
    from perago.assembly import assemble_worker, on_spark, prepare_executors
    from perago.backend import Embedded, Real, server_names
    from perago.runtime.observe.logs import logging_to
    from perago.runtime.worker.plan import check_lake, check_taskdefs, register_missing_taskdefs
    from perago.runtime.worker.supervisor import Supervisor, serve

    servers = Embedded(settings) if local else Real(settings)
    prepare_executors(servers)
    tasks = load_tasks(targets)
    served = tasks if no_run_steps else with_run_steps(tasks)
    if (
        (py_files or archives or jars)
        and engine is not Engine.SPARK
        and all(t.kind == "plain" for t in tasks)
    ):
        raise typer.BadParameter("--py-files, --archives and --jars are for Spark: add --engine spark")
    warn_about(tasks)
    plan = assemble_worker(servers, targets, served, slots=slots)
    with plan.spec.servers.opened() as (lake, orchestrator):
        plan = replace(plan, servers=server_names(settings, lake, orchestrator, embedded=local))
        check_lake(lake)
        if register:
            for name in register_missing_taskdefs(orchestrator, tasks):
                output.warn(f"TaskDef {name} was registered")
        else:
            check_taskdefs(orchestrator, tasks, remedy=_remedy(targets, root, local=local))
        if engine is Engine.SPARK:
            # The worker logs only once it serves, but starting Spark can take minutes.
            with logging_to(settings, name="supervisor"):
                plan = on_spark(plan)
        code = serve(plan, Supervisor(plan, orchestrator, lake), http=http, environ=os.environ)
    raise typer.Exit(code)


def _remedy(targets: list[str], root: Path | None, *, local: bool) -> str:
    """Return the command that registers the TaskDefs on this worker's servers."""
    where = ["--local"] if local else []
    if local and root is not None:
        where += ["--root", str(root)]
    return shlex.join(["perago", "register", *where, *targets])
