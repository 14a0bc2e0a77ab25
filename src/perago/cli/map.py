"""`perago map`: run one task over a table of workspaces, as one Spark job.

Exit codes: 0 if every requested row is done; 1 if rows failed or are left; 2 if the command line is invalid.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.map_view import MapView
from perago.cli.options import AsJson, PyFiles, Remote, Root, Yes
from perago.cli.server_choice import Asks, choose_servers
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.protocol.suggestions import did_you_mean
from perago.settings import Settings, shown_address

if TYPE_CHECKING:
    from perago.backend import Embedded, Real
    from perago.lake.base import Lake
    from perago.runtime.maps.map_run import Map, MapRequest
    from perago.runtime.maps.rows import Row

Target = Annotated[
    str, typer.Argument(metavar="TARGET:TASK", help="A module or file, and the name of a task in it.")
]
Table = Annotated[
    Path,
    typer.Argument(metavar="TABLE", help="The rows: .csv, .jsonl or .parquet, with a column repository."),
]
Outcomes = Annotated[
    Path, typer.Option("-o", "--outcomes", metavar="OUTCOMES", help="The file for the outcome of each row.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume the run that wrote OUTCOMES; finished rows are skipped.")
]
Retries = Annotated[
    int | None,
    typer.Option("--retries", min=0, metavar="N", help="Retries of a row; by default as the task declares."),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Run at most N rows.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check the table, but run nothing.")]


def map_(
    target: Target,
    table: Table,
    outcomes: Outcomes,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    resume: Resume = False,
    retries: Retries = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    py_files: PyFiles = [],  # noqa: B006 - typer reads the default, and never writes it
    as_json: AsJson = False,
) -> None:
    """Run one task over every row of a table, each as its own transaction, on Spark."""
    module, task = _task_of(target)
    asks: Asks = "never" if dry_run else "before it writes"
    choice = choose_servers(root, remote, asks=asks, yes=yes, lake_only=True)
    settings = choice.settings
    # Imported here because these modules import the runtime, the adapters and Spark.
    from perago.assembly import check_map, check_pyspark, open_engine
    from perago.runtime.maps.plan import write_outcomes
    from perago.runtime.maps.run_file import locked_run_file

    if not dry_run:
        check_pyspark("perago map")
    rows = _rows(task, table, outcomes, settings)
    where = choice.backend(conductor=False)
    check_map(where)
    with choice.open_lake() as lake:
        if dry_run:
            _show_plan(lake, task, rows[:limit])
            return
        if not resume:
            choice.agree(f"Run {task.name} on {len(rows[:limit])} branches there?")
        request = _map_request((module, task), rows, where, retries)
        with locked_run_file(
            outcomes, request.fresh(_address(lake, where), time.time()), resume=resume
        ) as run_file:
            mapped = request.begin(lake, run_file)
            left = mapped.left(limit)
            view = MapView(len(left), quiet=as_json)
            try:
                if left:
                    engine = open_engine(settings, py_files)
                    engine.check(mapped.plan)
                    with view:
                        mapped.drive(engine, left, view.on_outcome)
            except KeyboardInterrupt:
                output.note("stopped")
            finally:
                if mapped.known:
                    write_outcomes(outcomes, mapped.known.values())
    _print_summary(mapped, left, outcomes, seconds=view.seconds if as_json else None)


def _task_of(target: str) -> tuple[str, TaskDefinition]:
    module, separator, name = target.rpartition(":")
    if not separator or not module or not name:
        raise typer.BadParameter(f"{target!r} is not TARGET:TASK, such as tasks.py:clean_events")
    tasks = {task.name: task for task in load_tasks([module])}
    if name not in tasks:
        raise RuntimeConfigError(
            f"{module} declares no task {name!r}; it declares {', '.join(tasks)}{did_you_mean(name, list(tasks))}"
        )
    # Make the path absolute, because executors have a different current folder.
    return (str(Path(module).absolute()) if module.endswith(".py") else module), tasks[name]


def _rows(task: TaskDefinition, table: Path, outcomes: Path, settings: Settings) -> list[Row]:
    """Return the rows of the table.

    The task and the name of the outcomes file are checked first, so that an error in them is reported before anything
    is opened.
    """
    from perago.runtime.maps.rows import rows_of
    from perago.runtime.maps.table import format_of, read_table
    from perago.runtime.worker.plan import check_tasks

    if table.absolute() == outcomes.absolute():
        raise typer.BadParameter("TABLE and OUTCOMES are the same file: name another one for the outcomes")
    format_of(outcomes)
    check_tasks(settings, [task])
    return rows_of(task, read_table(table), text=format_of(table) == "csv")


def _map_request(
    what: tuple[str, TaskDefinition], rows: list[Row], where: Embedded | Real, retries: int | None
) -> MapRequest:
    from perago.assembly import max_result_bytes
    from perago.runtime.maps.map_run import MapRequest
    from perago.spark.config import runs_here

    here = runs_here(where.settings.spark_master)
    return MapRequest(*what, rows, where, retries, max_result_bytes(), log_here=here)


def _address(lake: Lake, where: Embedded | Real) -> str:
    lakefs = None if where.embedded else where.settings.lakefs
    return shown_address(lakefs.endpoint) if lakefs is not None else lake.server()


def _show_plan(lake: Lake, task: TaskDefinition, rows: list[Row]) -> None:
    from perago.runtime.maps.rows import diagnostic_in

    known = set(lake.repositories())
    wrong = 0
    for row in rows:
        diagnostic = diagnostic_in(task, row)
        if not diagnostic and row.repository not in known:
            diagnostic = f"there is no repository {row.repository!r}{did_you_mean(row.repository, known)}"
        if diagnostic:
            wrong += 1
            output.say(f"{row.label} would fail: {diagnostic}", "red")
    repositories = len({row.repository for row in rows})
    output.say(
        f"{task.name} would run on {len(rows) - wrong} of {len(rows)} rows, in {repositories} repositories; nothing was run"
    )
    if wrong:
        raise typer.Exit(output.FAILED)


def _print_summary(mapped: Map, left: list[Row], outcomes: Path, *, seconds: float | None) -> None:
    """Print how many rows are done, failed or left, and the command that resumes the run.

    Prints JSON, including the duration, if `seconds` is set.
    """
    row_counts = mapped.row_counts()
    bad = [row for row in left if not mapped.is_done(row)]
    if seconds is not None:
        figures = {**asdict(row_counts), "left": row_counts.left, "seconds": round(seconds, 3)}
        output.data({"run": mapped.plan.run, "outcomes": str(outcomes), **figures})
    else:
        parts = [f"{row_counts.done} of {row_counts.rows} rows are done"]
        parts += [f"{row_counts.failed} failed"] if row_counts.failed else []
        more = row_counts.unsettled + row_counts.left
        parts += [f"{more} left"] if more else []
        output.say(f"{', '.join(parts)}; outcomes: {outcomes}", "red" if bad else "green")
        if mapped.plan.log is not None and mapped.plan.log.exists():
            output.note(f"log: {mapped.plan.log}")
    if bad:
        output.note(f"continue with `{_resume_command()}`")
        raise typer.Exit(output.FAILED)


def _resume_command() -> str:
    """Return the command that resumes the run: the current command line with --resume added."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return shlex.join(["perago", *words, "--resume"])
