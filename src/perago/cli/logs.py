"""`perago logs`: show what the tasks in a run printed and logged.  With --follow, lines are shown as they arrive."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, RunName
from perago.cli.server_choice import servers_to_read

if TYPE_CHECKING:
    from pathlib import Path

    from perago.orchestrator.base import TaskState
    from perago.runtime.runs.log import BodyLine
    from perago.runtime.runs.record import MapRun

Step = Annotated[str | None, typer.Argument(metavar="STEP", help="A step's reference; all by default.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep showing new lines until the run has ended.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show the stacks of Spark's JVM, too.")]


def logs(
    run: RunName = None,
    step: Step = None,
    follow: Follow = False,
    root: Root = None,
    remote: Remote = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show what the tasks of a run printed and logged; the newest run by default."""
    from perago.runtime.runs import log
    from perago.runtime.runs.format import OutputFold
    from perago.runtime.runs.inspect import attempts_of
    from perago.runtime.runs.map_runs import find_map

    servers = servers_to_read(root, remote)
    if (mapped := find_map(servers, run)) is not None:
        _print_map(servers.settings.root, mapped, step, follow=follow, verbose=verbose, as_json=as_json)
        return
    folds: defaultdict[str, OutputFold] = defaultdict(OutputFold)
    found, step = log.run_and_step(servers, run, step)
    with closing(found.open()) as orchestrator:
        if follow:
            for one in log.follow(found, orchestrator, step):
                if as_json:
                    output.json_text(json.dumps(_as_json(one), ensure_ascii=False))
                    continue
                for text in [one.line.text] if verbose else folds[one.task.task_id](one.line.text):
                    output.say_printed(_text(one, text))
            return
        attempts = attempts_of(orchestrator, orchestrator.workflow(found.workflow_id))
    lines = log.printed_lines(attempts, step)
    if as_json:
        output.data([_as_json(one) for one in lines])
        return
    printed = False
    for one in lines:
        for text in [one.line.text] if verbose else folds[one.task.task_id](one.line.text):
            output.say_printed(_text(one, text))
            printed = True
    if not printed:
        output.note(f"no task of {found.id} printed anything" if step is None else f"{step} printed nothing")
    _print_failures([one.task for one in attempts if step is None or log.of_step(one.task, step)])


def _print_map(
    root: Path, run: MapRun, step: str | None, *, follow: bool, verbose: bool, as_json: bool
) -> None:
    """Print the log of a map, which all of its rows share."""
    from perago.runtime.runs.format import OutputFold
    from perago.runtime.runs.map_runs import printed_by_map
    from perago.runtime.runs.record import map_log

    if step is not None:
        output.fail(f"a {run.kind} has one log for all rows: leave out {step!r}")
    lines, fold = printed_by_map(root, run, follow=follow), OutputFold()
    if as_json and not follow:
        output.data([{"text": line} for line in lines])
        return
    printed = as_json
    for line in lines:
        if as_json:
            output.json_text(json.dumps({"text": line}, ensure_ascii=False))
            continue
        for text in [line] if verbose else fold(line):
            output.say_printed(text)
            printed = True
    if not printed or not map_log(root, run.id).is_file():
        output.note(
            f"{run.id} printed nothing on this machine; on a cluster, Spark's executors keep what they print"
        )


def _print_failures(tasks: list[TaskState]) -> None:
    """Print why attempts failed. Their logs do not contain the reason, but users expect to see it with the logs."""
    from perago.runtime.runs.format import status_line

    for task in tasks:
        if task.reason and task.status not in ("COMPLETED", "SCHEDULED", "IN_PROGRESS"):
            output.note(f"{status_line(task)}: {task.reason}", lines=True)


def _text(one: BodyLine, text: str) -> str:
    from perago.runtime.runs.format import body_line

    return body_line(one.task.reference, one.task.retry_count, text)


def _as_json(one: BodyLine) -> dict[str, Any]:
    return {
        "at": one.line.at,
        "step": one.task.reference,
        "retry_count": one.task.retry_count,
        "task_id": one.task.task_id,
        "text": one.line.text,
    }
