"""`perago map`: run one task over a table of workspaces, as one Spark job.

Exit codes: 0 if every requested row is done; 1 if rows failed or are left; 2 if the command line is invalid.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.map_view import MOST_FAILURES, MapView, folding_jvm
from perago.cli.options import Archives, AsJson, Jars, PyFiles, Remote, Root, Yes, spark_files
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
    from perago.runtime.maps.rows import Row, RowOutcome
    from perago.runtime.maps.run_file import MapRunFile
    from perago.runtime.runs.map_runs import MapProgress, MapRecorder
    from perago.runtime.runs.record import MapRun

_ROWS_NAMED = 5
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
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Show every row that fails, not only the first of each kind, and all that Spark prints.",
    ),
]
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
    archives: Archives = [],  # noqa: B006
    jars: Jars = [],  # noqa: B006
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one task over every row of a table, each as its own transaction, on Spark."""
    files = spark_files(py_files, archives, jars)
    module, task = task_of(target)
    asks: Asks = "never" if dry_run else "before it writes"
    choice = choose_servers(root, remote, asks=asks, yes=yes, lake_only=True)
    settings = replace(choice.settings, spark_files=files)
    choice = replace(choice, settings=settings)
    # Imported here because these modules import the runtime, the adapters and Spark.
    from perago.assembly import check_map, check_pyspark
    from perago.runtime.maps.run_file import locked_run_file
    from perago.runtime.runs.map_runs import recorded

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
        fresh = request.fresh(lake_address(lake, where), time.time())
        with ExitStack() as opened:
            run_file = opened.enter_context(locked_run_file(outcomes, fresh, resume=resume))
            recorder = opened.enter_context(
                recorded(settings.root, _record_of(run_file, table, outcomes, where))
            )
            mapped = request.begin(lake, run_file)
            left = mapped.left(limit)
            shown = Shown(as_json, verbose)
            with RowsOnSpark(mapped, task, recorder, outcomes, shown, settings) as on_spark:
                on_spark.run(left)
    follow = shlex.join(_resume_words())
    print_summary(mapped, left, outcomes, follow, seconds=on_spark.seconds if as_json else None)


@dataclass(frozen=True, slots=True)
class Shown:
    """The amount of text that a session prints while it runs."""

    quiet: bool
    verbose: bool


class RowsOnSpark:
    """Runs rows on Spark, shows their progress, and writes the table of outcomes when the block ends."""

    def __init__(
        self,
        mapped: Map,
        task: TaskDefinition,
        recorder: MapRecorder,
        outcomes: Path,
        shown: Shown,
        settings: Settings,
    ) -> None:
        self._mapped, self._task, self._recorder = mapped, task, recorder
        self._outcomes, self._verbose, self._settings = outcomes, shown.verbose, settings
        self._view = MapView(len(mapped.left()), quiet=shown.quiet, verbose=shown.verbose)

    @property
    def seconds(self) -> float:
        """The duration of the rows, once they have ended."""
        return self._view.seconds

    def __enter__(self) -> RowsOnSpark:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        from perago.runtime.maps.plan import write_outcomes

        if stopped := kind is KeyboardInterrupt:
            output.note("stopped")
        self._recorder.save(progress_of(self._mapped))
        if self._mapped.known:
            write_outcomes(self._outcomes, self._mapped.known.values())
        return stopped

    def run(self, rows: Sequence[Row], *, in_order: bool = False) -> None:
        """Run these rows.  With `in_order`, a row begins only after the one before it has ended."""
        from perago.assembly import open_engine

        if not rows:
            return
        engine = open_engine(self._settings, self._task)
        with folding_jvm(self._mapped.plan.log, verbose=self._verbose):
            engine.check(self._mapped.plan)
        drive = self._mapped.drive_in_order if in_order else self._mapped.drive
        with self._view:
            drive(engine, rows, self.on_outcome)

    def on_outcome(self, outcome: RowOutcome) -> None:
        """Show and record that a row has ended."""
        self._view.on_outcome(outcome)
        self._recorder.update(partial(progress_of, self._mapped))


def task_of(target: str) -> tuple[str, TaskDefinition]:
    """Return the module of TARGET:TASK, in a form that executors can load, and the task."""
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
    from perago.runtime.maps.parse import check_columns, rows_of
    from perago.runtime.maps.table import format_of, read_table
    from perago.runtime.worker.plan import check_tasks

    if table.absolute() == outcomes.absolute():
        raise typer.BadParameter("TABLE and OUTCOMES are the same file: name another one for the outcomes")
    format_of(outcomes)
    check_tasks(settings, [task])
    rows = rows_of(task, read_table(table), text=format_of(table) == "csv")
    check_columns(task, rows)
    return rows


def _map_request(
    what: tuple[str, TaskDefinition], rows: list[Row], where: Embedded | Real, retries: int | None
) -> MapRequest:
    from perago.assembly import executor_targets, max_result_bytes
    from perago.runtime.maps.map_run import MapRequest
    from perago.runtime.runs.record import map_log
    from perago.spark.config import runs_here

    settings = where.settings
    log = partial(map_log, settings.root) if runs_here(settings.spark_master) else None
    module, task = what
    [target] = executor_targets(settings, [module], [task])
    return MapRequest(target, task, rows, where, retries, max_result_bytes(), log)


def _record_of(run_file: MapRunFile, table: Path, outcomes: Path, where: Embedded | Real) -> MapRun:
    """Return the record of the run on this machine."""
    from perago.runtime.runs.record import MapRun

    return MapRun(
        run_file.run,
        run_file.task,
        str(table),
        str(outcomes),
        run_file.rows,
        run_file.started / 1000,
        str(Path.cwd()),
        lake=run_file.lake,
        embedded=where.embedded,
        command=_resume_words(),
    )


def progress_of(mapped: Map) -> MapProgress:
    """Return the progress of a session, as the run's record on this machine keeps it."""
    from perago.runtime.maps.rows import failure_groups
    from perago.runtime.runs.map_runs import MapFailure, MapProgress

    counts = mapped.row_counts()
    groups = [one for one in failure_groups(mapped.known.values()) if one.status != "UNSETTLED"]
    failures = [
        MapFailure(one.status, one.reason, len(one.rows), one.rows[:_ROWS_NAMED])
        for one in groups[:MOST_FAILURES]
    ]
    return MapProgress(counts.done, counts.failed, failures, len(groups))


def lake_address(lake: Lake, where: Embedded | Real) -> str:
    """Return the lake's address without credentials, as records keep it."""
    lakefs = None if where.embedded else where.settings.lakefs
    return shown_address(lakefs.endpoint) if lakefs is not None else lake.server()


def _show_plan(lake: Lake, task: TaskDefinition, rows: list[Row]) -> None:
    from perago.runtime.maps.parse import diagnostic_in

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


def print_summary(
    mapped: Map, left: Sequence[Row], outcomes: Path, follow: str, *, seconds: float | None
) -> None:
    """Print how many rows are done, failed or left, and the command that resumes the run (`follow`).

    Prints JSON, including the duration, if `seconds` is set.
    """
    from perago.runtime.maps.rows import failure_groups

    row_counts = mapped.row_counts()
    groups = failure_groups(mapped.known.values())
    bad = [row for row in left if not mapped.is_done(row)]
    if seconds is not None:
        figures = {**asdict(row_counts), "left": row_counts.left, "seconds": round(seconds, 3)}
        failures = [asdict(group) for group in groups]
        output.data({"run": mapped.plan.run, "outcomes": str(outcomes), **figures, "failures": failures})
    else:
        # A row that failed for a reason of its own was shown when it ended, unless an earlier session ran it.
        for group in groups[:MOST_FAILURES]:
            if len(group.rows) > 1:
                output.note(str(group), lines=True)
        parts = [f"{row_counts.done} of {row_counts.rows} rows are done"]
        parts += [f"{row_counts.failed} failed"] if row_counts.failed else []
        more = row_counts.unsettled + row_counts.left
        parts += [f"{more} left"] if more else []
        output.say(f"{', '.join(parts)}; outcomes: {outcomes}", "red" if bad else "green")
        if mapped.plan.log is not None and mapped.plan.log.exists():
            output.note(f"log: {mapped.plan.log}")
    if bad:
        output.note(f"continue with `{follow}`")
        raise typer.Exit(output.FAILED)


def _resume_words() -> list[str]:
    """Return the command that resumes the run: the current command line with --resume added."""
    return ["perago", *(word for word in sys.argv[1:] if word != "--resume"), "--resume"]
