"""`perago schedule`: workflows that Conductor's own scheduler starts by the clock.

Exit codes: 0 if the command did its work, 1 if it was refused or failed, 2 if the command line is invalid.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perago.cli import output
from perago.cli.options import AsJson, Yes, read_repository
from perago.cli.server_choice import ServerChoice, refuse_without_terminal
from perago.cli.workflow_input import read_payload
from perago.errors import RuntimeConfigError
from perago.settings import load_settings

if TYPE_CHECKING:
    from perago.orchestrator.base import Cron, Schedule, Scheduler

Workflow = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="The workflow's name, as it is registered.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
CronOption = Annotated[
    str,
    typer.Option(
        "--cron", metavar="CRON", help="When to start it: second, minute, hour, day, month, day of week."
    ),
]
Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="The zone of CRON, such as Europe/Berlin.")]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace",
        metavar="REPO[@BRANCH]",
        help="The branch from whose head every run starts, as `workspace`.",
    ),
]
Input = Annotated[
    str, typer.Option("--input", metavar="FILE|JSON", help="The rest of the input of every run.")
]
Version = Annotated[
    int | None,
    typer.Option("--version", metavar="N", help="The version; by default the newest at each start."),
]
ScheduleName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The schedule's name; by default the workflow's.")
]
Local = Annotated[bool, typer.Option("--local/--remote", hidden=True)]

_DONE = {"pause": "paused", "resume": "resumed", "remove": "removed"}

app = typer.Typer(no_args_is_help=True, help="Let Conductor start workflows by the clock.")


@app.command("add")
def add(
    workflow: Workflow,
    cron: CronOption,
    zone: Zone = "UTC",
    workspace: WorkspaceOption = None,
    input_: Input = "{}",
    version: Version = None,
    name: ScheduleName = None,
    local: Local = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Start a registered workflow again and again, at the times of a cron expression, with the same input."""
    payload = read_payload(input_)
    if workspace is not None:
        if "workspace" in payload:
            raise typer.BadParameter("the workspace is given twice: by --workspace and in --input")
        read_repository(workspace)
    from perago.backend import open_conductor, open_lakefs
    from perago.orchestrator.base import Cron
    from perago.runtime.schedules import prepare_schedule
    from perago.runtime.submit import SubmitRequest

    with (
        _opened(local, writes=True, yes=yes) as (choice, scheduler),
        ExitStack() as stack,
    ):
        orchestrator = open_conductor(choice.settings)
        stack.callback(orchestrator.close)
        lake = None
        if workspace is not None:
            choice.name_lake()
            lake = open_lakefs(choice.settings)
            stack.callback(lake.close)
        prepared = prepare_schedule(
            scheduler,
            orchestrator,
            lake,
            SubmitRequest(workflow, payload, workspace, version),
            name=name or workflow,
            cron=Cron(cron, zone),
            now=time.time(),
            remedy="perago register WORKFLOW.json",
        )
        for text in prepared.warnings:
            output.warn(text)
        schedule = prepared.schedule
        times = [_format(one, schedule.crons[0]) for one in prepared.next_times]
        if not yes:
            output.note(f"input: {json.dumps(schedule.input, ensure_ascii=False)}")
            output.note(f"starts: {', '.join(times)}, …")
        choice.agree(f"Add schedule {_describe(schedule)} there?")
        scheduler.save_schedule(schedule)
    if as_json:
        output.data({**_as_json(schedule), "next": times})
    else:
        output.say(f"{_describe(schedule)}, first at {times[0]}")


@app.command("list")
def list_(local: Local = False, as_json: AsJson = False) -> None:
    """List the schedules, with their workflow, times, workspace and state."""
    with _opened(local) as (_, scheduler):
        found = scheduler.schedules()
    if as_json:
        output.data([_as_json(one) for one in found])
        return
    if not found:
        output.note("no schedules on Conductor")
    for one in found:
        output.say(f"{_describe(one)}{_format_workspace(one)}{', PAUSED' if one.paused else ''}")


@app.command("next")
def next_(name: Name, local: Local = False, as_json: AsJson = False) -> None:
    """Show the next times at which a schedule starts its workflow: at most five."""
    from perago.runtime.schedules import find_schedule, next_times

    with _opened(local) as (_, scheduler):
        schedule = find_schedule(scheduler, name)
        times = [_format(*one) for one in next_times(scheduler, schedule, time.time())]
    if as_json:
        output.data({**_as_json(schedule), "next": times})
        return
    if schedule.paused:
        output.note(f"schedule {name} is paused; `perago schedule resume {name}` continues it")
    elif not times:
        output.note(f"schedule {name} starts nothing more")
    for text in times:
        output.say(text)


@app.command("pause")
def pause(name: Name, local: Local = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Start nothing more until the schedule is resumed; running workflows continue."""
    _change("pause", name, local=local, yes=yes, as_json=as_json)


@app.command("resume")
def resume(name: Name, local: Local = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Continue a paused schedule, from its next time on."""
    _change("resume", name, local=local, yes=yes, as_json=as_json)


@app.command("remove")
def remove(name: Name, local: Local = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a schedule; workflows that it has started continue."""
    _change("remove", name, local=local, yes=yes, as_json=as_json)


def _change(
    action: Literal["pause", "resume", "remove"], name: str, *, local: bool, yes: bool, as_json: bool
) -> None:
    from perago.runtime.schedules import find_schedule

    with _opened(local, writes=True, yes=yes) as (choice, scheduler):
        schedule = find_schedule(scheduler, name)
        # To pause a paused schedule changes nothing, and Conductor refuses to resume one that is not.
        if action == "remove" or schedule.paused is not (action == "pause"):
            choice.agree(f"{action.capitalize()} schedule {_describe(schedule)}?")
            match action:
                case "pause":
                    scheduler.pause_schedule(name)
                case "resume":
                    scheduler.resume_schedule(name)
                case "remove":
                    scheduler.remove_schedule(name)
    if as_json:
        output.data({"action": action, "name": name, "workflow": schedule.workflow})
    else:
        output.say(f"schedule {name} is {_DONE[action]}")


@contextmanager
def _opened(
    local: bool, *, writes: bool = False, yes: bool = False
) -> Iterator[tuple[ServerChoice, Scheduler]]:
    """Open Conductor's scheduler, and name the server on stderr."""
    settings = load_settings(os.environ, remote=True)
    if local or settings.conductor is None:
        raise RuntimeConfigError(
            "schedules need Conductor, which starts the workflows: set CONDUCTOR_SERVER_URL; on a laptop, let cron call "
            "`perago run` instead"
        )
    refuse_without_terminal("before it writes" if writes else "never", yes=yes)
    from perago.backend import open_conductor_scheduler

    with closing(open_conductor_scheduler(settings)) as scheduler:
        output.note(f"Conductor: {scheduler.address}")
        yield ServerChoice(settings, yes), scheduler


def _describe(schedule: Schedule) -> str:
    version = "newest version" if schedule.version is None else f"version {schedule.version}"
    times = " and ".join(f"{cron.expression} {cron.zone}" for cron in schedule.crons)
    return f"{schedule.name}: workflow {schedule.workflow} ({version}) at {times}"


def _format_workspace(schedule: Schedule) -> str:
    given = schedule.input.get("workspace")
    if not isinstance(given, dict) or "repository" not in given:
        return ""
    return f", from {given['repository']}@{given.get('ref') or given.get('branch')}"


def _format(seconds: float, cron: Cron) -> str:
    from perago.runtime.schedules import read_zone

    return datetime.fromtimestamp(seconds, read_zone(cron.zone)).isoformat(sep=" ")


def _as_json(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "workflow": schedule.workflow,
        "version": schedule.version,
        "times": [{"cron": cron.expression, "zone": cron.zone} for cron in schedule.crons],
        "input": dict(schedule.input),
        "paused": schedule.paused,
    }
