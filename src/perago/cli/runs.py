"""`perago runs`: list runs, newest first.  `perago runs prune` removes old ones."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, Yes, duration, format_time
from perago.cli.server_choice import ServerChoice, refuse_without_terminal, servers_to_read
from perago.settings import load_settings

if TYPE_CHECKING:
    from perago.runtime.runs.listing import RunRow

app = typer.Typer(help="List runs, newest first, or remove old ones.", invoke_without_command=True)
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="List at most this many.")]
OlderThan = Annotated[
    float,
    typer.Option(
        "--older-than",
        metavar="AGE",
        parser=duration,
        help="Remove runs without activity for this long (30s, 5m, 1h, 2d).",
    ),
]


@app.callback()
def runs(
    context: typer.Context,
    root: Root = None,
    remote: Remote = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, with their start time, workflow, status, duration and failure."""
    if context.invoked_subcommand is not None:
        if root is not None or remote is not None or as_json:
            raise typer.BadParameter(
                f"give options after `{context.invoked_subcommand}`: it ignores those before it"
            )
        return
    from perago.runtime.runs.listing import list_runs

    servers = servers_to_read(root, remote)
    rows = list_runs(servers, limit)
    if as_json:
        output.data([_as_json(row) for row in rows])
        return
    if not rows:
        output.note(f"no runs {'on Conductor' if not servers.embedded else f'below {servers.settings.root}'}")
    for line in _lines(rows):
        output.say(line)


@app.command("prune")
def prune(older_than: OlderThan, root: Root = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove the folders of old runs, with their logs and state. What the runs have published is kept."""
    from perago.runtime.runs import listing

    refuse_without_terminal("before it deletes", yes=yes)
    settings = load_settings(os.environ, root=root)
    judged = partial(listing.judge_runs, settings.root, older_than=older_than, now=time.time())
    runs_now = judged()
    going = [run for run, keep in runs_now if not keep]
    if going and not yes:
        for run in going:
            output.note(f"would remove: {run.id}  {run.workflow_name}")
        ServerChoice(settings).agree_to_delete(f"Remove {len(going)} runs below {settings.root}?")
        # A run may have been resumed while the user read the question.
        runs_now = judged()
    done = [(run, keep or listing.remove_run(settings.root, run)) for run, keep in runs_now]
    if as_json:
        output.data(
            [{"run": run.id, "workflow": run.workflow_name, "action": action} for run, action in done]
        )
    else:
        for run, action in done:
            output.say(f"{run.id}  {run.workflow_name}  {action}")
        gone = sum(action == "removed" for _, action in done)
        output.say(f"{gone} removed, {len(done) - gone} kept")
    if any(action.startswith("failed") for _, action in done):
        raise typer.Exit(output.FAILED)


def _lines(rows: list[RunRow]) -> list[str]:
    from perago.runtime.runs.format import duration as took

    table = [
        (
            row.id,
            format_time(row.started) if row.started else "-",
            row.workflow,
            row.status,
            took(row.seconds) or "-",
        )
        for row in rows
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    ends = [f"stopped; {row.resume}" if row.resume else row.failed for row in rows]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), end]).rstrip()
        for cells, end in zip(table, ends, strict=True)
    ]


def _as_json(row: RunRow) -> dict[str, Any]:
    return {**asdict(row), "seconds": row.seconds}
