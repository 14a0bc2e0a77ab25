"""`perago runs`: list runs, newest first.  `perago runs rm` and `perago runs prune` remove them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, Yes, duration, format_time
from perago.cli.server_choice import ServerChoice, refuse_without_terminal, servers_to_read
from perago.settings import load_settings

if TYPE_CHECKING:
    from perago.runtime.runs.listing import Judged, RunRow
    from perago.settings import Settings

_COMMIT_CHARS = 8
_REASON_CHARS = 160

app = typer.Typer(help="List runs, newest first, or remove them.", invoke_without_command=True)
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
RunNames = Annotated[
    list[str], typer.Argument(metavar="RUN…", help="The ids of runs or workflows, or their beginnings.")
]


@app.callback()
def runs(
    context: typer.Context,
    root: Root = None,
    remote: Remote = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first, with their start time, workflow, status, duration, input and failure."""
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
    _remove(
        settings,
        partial(listing.judge_runs, settings.root, older_than=older_than, now=time.time()),
        yes=yes,
        as_json=as_json,
    )


@app.command("rm")
def rm(names: RunNames, root: Root = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove the folders of these runs, with their logs and state. What the runs have published is kept."""
    from perago.runtime.runs import listing

    refuse_without_terminal("before it deletes", yes=yes)
    settings = load_settings(os.environ, root=root)
    _remove(settings, partial(listing.chosen_runs, settings.root, names), yes=yes, as_json=as_json)


def _remove(settings: Settings, judged: Callable[[], list[Judged]], *, yes: bool, as_json: bool) -> None:
    """Show the runs that would be removed, ask, and remove them."""
    from perago.runtime.runs.format import size
    from perago.runtime.runs.listing import remove_run
    from perago.runtime.runs.record import MapRun

    runs_now = judged()
    going = [one for one in runs_now if not one.keep]
    if going and not yes:
        for one in going:
            last = format_time(one.last_write)
            output.note(
                f"would remove: {one.run.id}  {one.run.workflow_name}  {size(one.bytes)}, last written {last}"
            )
        total = size(sum(one.bytes for one in going))
        kept = f" ({len(runs_now) - len(going)} are kept)" if len(going) < len(runs_now) else ""
        ServerChoice(settings).agree_everywhere(
            f"Remove {_count(len(going))}, {total}, below {settings.root}{kept}?"
        )
        # A run may have been resumed while the user read the question.
        runs_now = judged()
    done = [(one, one.keep or remove_run(settings.root, one.run)) for one in runs_now]
    if as_json:
        output.data(
            [
                {"run": one.run.id, "workflow": one.run.workflow_name, "bytes": one.bytes, "action": action}
                for one, action in done
            ]
        )
    else:
        for one, action in done:
            output.say(f"{one.run.id}  {one.run.workflow_name}  {size(one.bytes)}  {action}")
        maps = [action for one, action in done if isinstance(one.run, MapRun) and one.run.kind == "map"]
        if "removed" in maps:
            output.note(
                "the outcomes of a removed map and its record in the lake (repository perago-maps) stay: `perago map` "
                "still resumes it with --resume"
            )
        gone = [one.bytes for one, action in done if action == "removed"]
        output.say(f"{len(gone)} removed ({size(sum(gone))}), {len(done) - len(gone)} kept")
    if any(action.startswith("failed") for _, action in done):
        raise typer.Exit(output.FAILED)


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


def _lines(rows: list[RunRow]) -> list[str]:
    from perago.runtime.runs.format import duration as took
    from perago.runtime.runs.run_input import values_text, workspaces_text

    table = [
        (
            row.id,
            format_time(row.started) if row.started else "-",
            row.workflow,
            row.status,
            took(row.seconds) or "-",
            workspaces_text(row.input, _COMMIT_CHARS) or "-",
        )
        for row in rows
    ]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    rest = [
        " | ".join(filter(None, (values_text(row.input), row.marks, row.resume or _cut(row.failed))))
        for row in rows
    ]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), end]).rstrip()
        for cells, end in zip(table, rest, strict=True)
    ]


def _as_json(row: RunRow) -> dict[str, Any]:
    return {**asdict(row), "seconds": row.seconds, "workspaces": [asdict(one) for one in row.workspaces]}


def _cut(reason: str) -> str:
    """Return the beginning of a reason, which names the cause; `perago show` has all of it."""
    return reason if len(reason) <= _REASON_CHARS else f"{reason[: _REASON_CHARS - 1]}…"
