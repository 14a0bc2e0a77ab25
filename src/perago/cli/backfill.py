"""`perago backfill`: run one task over many of its partitions, each as its own publication on one branch.

Exit codes: 0 if every requested row is done; 1 if rows failed or are left; 2 if the command line is invalid.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perago.cli import output
from perago.cli.map import Retries, RowsOnSpark, Shown, Target, Verbose, lake_address, print_summary, task_of
from perago.cli.options import (
    Archives,
    AsJson,
    Jars,
    PyFiles,
    Remote,
    Root,
    Yes,
    read_repository,
    spark_files,
)
from perago.cli.server_choice import Asks, ServerChoice, choose_servers
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.settings import Settings
from perago.spark_defaults import chosen_master

if TYPE_CHECKING:
    from perago.lake.base import Lake
    from perago.runtime.backfill.partitions import Partition
    from perago.runtime.backfill.record import Backfill, Flags
    from perago.runtime.backfill.selection import Choice
    from perago.runtime.maps.map_run import MapRequest
    from perago.runtime.maps.run_file import MapRunFile
    from perago.runtime.runs.record import MapRun

_NAMED = 5
Where = Annotated[str, typer.Argument(metavar="REPO[@BRANCH]", help="The repository and the branch (main).")]
Name = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="With --resume: the backfill, by default the newest unfinished one."),
]
Over = Annotated[
    list[str],
    typer.Option(
        "--over",
        metavar="NAME=VALUES",
        help="The values of a param: a..b or a,b for dates and whole numbers, a,b for text and enums.",
    ),
]
Param = Annotated[
    list[str],
    typer.Option("--param", metavar="NAME=VALUE", help="A param that is the same in each row; repeat it."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        min=1,
        metavar="N",
        help='Rows that run at once on this machine; above 1 needs on_advanced="rebase".',
    ),
]
OnlyOption = Annotated[
    Literal["missing", "failed", "all"],
    typer.Option("--only", help="The partitions to run: those not published, those that failed, or all."),
]
OrderOption = Annotated[
    Literal["asc", "desc"], typer.Option("--order", help="Begin with the lowest values, or the highest.")
]
Full = Annotated[
    bool, typer.Option("--full", help="Skip no body, and let `changes()` report all files as new.")
]
Force = Annotated[bool, typer.Option("--force", help="Run bodies though nothing has changed.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume a backfill, with the rows and flags that it began with.")
]
Atomic = Annotated[
    bool, typer.Option("--atomic", help="Publish all rows as one commit, once all of them are done.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show which rows would run, but run nothing.")]


def _refuse_with_resume(given: Mapping[str, object]) -> None:
    """Exit if there is an option that a resumed backfill already has in its record."""
    names = [name for name, value in given.items() if value]
    if names:
        raise typer.BadParameter(
            f"--resume takes the rows and flags from the backfill's record: leave out {', '.join(names)}"
        )


def backfill(
    target: Target,
    where: Where,
    name: Name = None,
    over: Over = [],  # noqa: B006 - typer reads the default, and never writes it
    param: Param = [],  # noqa: B006
    jobs: Jobs = None,
    only: OnlyOption = "missing",
    order: OrderOption = "asc",
    dry_run: DryRun = False,
    resume: Resume = False,
    full: Full = False,
    force: Force = False,
    retries: Retries = None,
    atomic: Atomic = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    py_files: PyFiles = [],  # noqa: B006
    archives: Archives = [],  # noqa: B006
    jars: Jars = [],  # noqa: B006
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run one task over many of its partitions, each as its own publication on one branch, on Spark."""
    from perago.runtime.backfill.record import Flags

    flags = Flags(tuple(over), jobs, only, order, full, force, retries, atomic)
    if resume:
        default = asdict(Flags())
        changed = {f"--{name}": value != default[name] for name, value in asdict(flags).items()}
        _refuse_with_resume({**changed, "--param": param, "--dry-run": dry_run})
    elif name is not None:
        raise typer.BadParameter(f"add --resume to resume {name}")
    files = spark_files(py_files, archives, jars)
    module, task = task_of(target)
    _check_task(task, jobs)
    asks: Asks = "never" if dry_run else "before it writes"
    choice = choose_servers(root, remote, asks=asks, yes=yes, lake_only=True)
    choice = replace(choice, settings=replace(choice.settings, spark_files=files))
    repository, branch = read_repository(where)
    at = repository, branch or "main"
    words = [word for given, values in _spark_words(py_files, archives, jars) for word in (given, values)]
    session = Session(
        choice, (module, task), at, Shown(as_json, verbose), ("perago", "backfill", target, where)
    )
    session = replace(session, options=(*choice.options(root), *words))
    from perago.assembly import check_pyspark
    from perago.runtime.backfill.partitions import partitions_of
    from perago.runtime.worker.plan import check_tasks

    check_tasks(choice.settings, [task])
    if not dry_run:
        check_pyspark("perago backfill")
    partitions = [] if resume else partitions_of(task, over, param)
    with choice.open_lake() as lake:
        if resume:
            session.resume(lake, name)
        else:
            session.start(lake, flags, partitions, dry_run=dry_run)


def _check_task(task: TaskDefinition, jobs: int | None) -> None:
    from perago.runtime.backfill.partitions import check_task
    from perago.runtime.maps import parse

    parse.check_task(task)
    spec = check_task(task, "perago backfill")
    if (jobs or 1) > 1 and not spec.rebases:
        raise RuntimeConfigError(
            f"task {task.name!r} refuses to publish on top of others' commits, so its rows run one after another: leave "
            'out -j, or declare WorkspaceSpec(on_advanced="rebase", on_abandoned="supersede")'
        )


def _spark_words(
    py_files: Sequence[str], archives: Sequence[str], jars: Sequence[str]
) -> list[tuple[str, str]]:
    given = (("--py-files", py_files), ("--archives", archives), ("--jars", jars))
    return [(option, value) for option, values in given for value in values]


@dataclass(frozen=True, slots=True)
class Session:
    """One invocation of the command: its servers, its task, its branch, and how to name it in a command."""

    choice: ServerChoice
    what: tuple[str, TaskDefinition]
    at: tuple[str, str]
    shown: Shown
    command: Sequence[str]
    options: Sequence[str] = ()

    def start(
        self, lake: Lake, flags: Flags, partitions: Sequence[Partition], *, dry_run: bool = False
    ) -> None:
        """Start a backfill of those of the partitions that are asked for."""
        from perago.runtime.backfill.atomic import check_count
        from perago.runtime.backfill.selection import begin

        task = self.what[1]
        choices, begun = begin(lake, task, self.at, partitions, flags)
        if dry_run:
            _show_plan(task, choices, as_json=self.shown.quiet)
            return
        if not begun.rows:
            _say_nothing_to_do(choices, flags.only, as_json=self.shown.quiet)
            return
        if flags.atomic:
            check_count(begun)
        if not self.shown.quiet:
            _note_choices(choices)
        self.choice.agree(f"Run {task.name} on {len(begun.rows)} partitions of {'@'.join(self.at)} there?")
        request = self._request(begun)
        self._run(lake, begun, request, request.fresh(self._address(lake), time.time()), resume=False)

    def resume(self, lake: Lake, name: str | None) -> None:
        """Resume a backfill."""
        from perago.runtime.backfill.record import Backfill, check_paths, find_to_resume

        root, task = self.choice.settings.root, self.what[1]
        run_file = find_to_resume(root, name, task.name, self._address(lake), self.at)
        begun = Backfill.of_json(run_file.backfill or {})
        check_paths(task, begun, run_file.run)
        self._run(lake, begun, self._request(begun), run_file, resume=True)

    def _run(
        self, lake: Lake, begun: Backfill, request: MapRequest, run_file: MapRunFile, *, resume: bool
    ) -> None:
        from perago.assembly import check_map
        from perago.runtime.backfill.atomic import AtomicBackfill, drive_atomic
        from perago.runtime.backfill.record import outcomes_file
        from perago.runtime.maps.run_file import locked_run_file
        from perago.runtime.runs.map_runs import recorded

        settings = self._on_spark(begun.flags.jobs)
        check_map(request.where)
        outcomes = outcomes_file(settings.root, run_file.run).absolute()
        outcomes.parent.mkdir(parents=True, exist_ok=True)
        run = self._record_of(run_file, begun, outcomes)
        with ExitStack() as opened:
            opened.enter_context(locked_run_file(outcomes, run_file, resume=resume))
            recorder = opened.enter_context(recorded(settings.root, run))
            mapped = request.begin(lake, run_file)
            left = mapped.left()
            with RowsOnSpark(mapped, self.what[1], recorder, outcomes, self.shown, settings) as rows:
                if begun.flags.atomic:
                    workdirs = Path(opened.enter_context(TemporaryDirectory(prefix="perago-backfill-")))
                    atomic = AtomicBackfill(begun, self.what[1], lake, mapped.plan, workdirs)
                    drive_atomic(
                        mapped, atomic, partial(rows.run, in_order=begun.sequential), rows.on_outcome
                    )
                else:
                    rows.run(left, in_order=begun.sequential)
        follow = shlex.join(run.command)
        print_summary(mapped, left, outcomes, follow, seconds=rows.seconds if self.shown.quiet else None)

    def _request(self, begun: Backfill) -> MapRequest:
        from perago.assembly import executor_targets, max_result_bytes
        from perago.runtime.maps.map_run import MapRequest
        from perago.runtime.runs.record import map_log
        from perago.spark.config import runs_here

        settings = self._on_spark(begun.flags.jobs)
        where = replace(self.choice, settings=settings).backend(conductor=False)
        log = partial(map_log, settings.root) if runs_here(settings.spark_master) else None
        module, task = self.what
        [target] = executor_targets(settings, [module], [task])
        return MapRequest(
            target,
            task,
            begun.table(),
            where,
            begun.flags.retries,
            max_result_bytes(),
            log,
            backfill=begun.to_json(),
            full=begun.flags.full,
            force=begun.flags.force,
        )

    def _on_spark(self, jobs: int | None) -> Settings:
        """Return the settings with as many local slots as rows should run at once, unless a Spark master is configured."""
        settings = self.choice.settings
        if jobs is None:
            return settings
        if chosen_master(os.environ, default="")[1] != "default":
            return settings
        return replace(settings, spark_master=f"local[{jobs}]")

    def _address(self, lake: Lake) -> str:
        return lake_address(lake, self.choice.backend(conductor=False))

    def _record_of(self, run_file: MapRunFile, begun: Backfill, outcomes: Path) -> MapRun:
        from perago.runtime.runs.record import MapRun

        return MapRun(
            run_file.run,
            run_file.task,
            " ".join(begun.flags.over),
            str(outcomes),
            run_file.rows,
            run_file.started / 1000,
            str(Path.cwd()),
            lake=run_file.lake,
            embedded=not self.choice.remote,
            command=[*self.command, "--resume", run_file.run, *self.options],
            workspace=f"{begun.repository}@{begun.branch}",
        )


def _show_plan(task: TaskDefinition, choices: Sequence[Choice], *, as_json: bool) -> None:
    running = [one for one in choices if one.runs]
    if as_json:
        output.data(
            [
                {
                    "partition": one.partition.names,
                    "params": one.partition.params,
                    "runs": one.runs,
                    "reason": one.reason,
                }
                for one in choices
            ]
        )
        return
    for one in choices:
        reason = f" ({one.reason})" if one.reason else ""
        output.say(f"{'run' if one.runs else 'leave out'}  {one.partition}{reason}")
    output.say(f"{task.name} would run on {len(running)} of {len(choices)} partitions; nothing was run")


def _say_nothing_to_do(choices: Sequence[Choice], only: str, *, as_json: bool) -> None:
    if as_json:
        figures = {"rows": 0, "done": 0, "failed": 0, "unsettled": 0, "left": 0, "seconds": 0.0}
        output.data({"run": None, "outcomes": None, **figures, "failures": []})
        return
    why = "every partition is published" if only == "missing" else "no partition has failed since"
    output.say(f"nothing to run: {why} ({len(choices)} left out); --only all runs them again", "green")


def _note_choices(choices: Sequence[Choice]) -> None:
    """Say how many partitions are left out, and which of the others have been published before."""
    out = sum(not one.runs for one in choices)
    if out:
        output.note(f"{out} of {len(choices)} partitions are left out; --dry-run shows why")
    again = [one for one in choices if one.runs and one.reason]
    for one in again[:_NAMED]:
        output.note(f"{one.partition} runs: {one.reason}")
    if len(again) > _NAMED:
        output.note(f"and {len(again) - _NAMED} more such partitions")
