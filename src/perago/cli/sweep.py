"""`perago sweep`: remove branches and tags that finished attempts have left in a lake."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

import typer

from perago.backend import open_conductor, open_local_orchestrators
from perago.cli import output
from perago.cli.options import AsJson, DryRun, Remote, Root, Yes, duration
from perago.cli.server_choice import ServerChoice, choose_servers, need_servers
from perago.errors import LakeError
from perago.lake.base import Lake
from perago.runtime.maps.row_runner import MapRows
from perago.runtime.sweep.branches import Owners, Verdict, find_leftovers, judge, remove
from perago.settings import parse_duration

DEFAULT_AGE = "1h"

Repositories = Annotated[
    list[str] | None,
    typer.Argument(metavar="REPO", help="The repositories to clean up; all of them by default."),
]


def sweep(
    repositories: Repositories = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            parser=duration,
            help=f"Keep tags, and branches of unknown tasks, newer than AGE ({DEFAULT_AGE} by default).",
        ),
    ] = None,
    dry_run: DryRun = False,
    tags: Annotated[
        bool, typer.Option("--tags", help="Also remove the tags of replaced heads; requires --older-than.")
    ] = False,
    runs: Annotated[
        bool,
        typer.Option(
            "--runs",
            help="Also remove the branches of runs that were not published, and the tags of published runs; requires "
            "--older-than.",
        ),
    ] = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Remove the staging and claim branches, hidden ones included, that attempts have left behind."""
    if runs and older_than is None:
        raise typer.BadParameter(
            "--runs requires --older-than: say how old a run must be before it can no longer be resumed"
        )
    if tags and older_than is None:
        raise typer.BadParameter(
            "--tags requires --older-than: say how old a replaced head must be before its tag is removed"
        )
    age = parse_duration(DEFAULT_AGE) if older_than is None else older_than
    choice = choose_servers(root, remote, asks="never" if dry_run else "before it deletes", yes=yes)
    if choice.remote:
        need_servers(choice.settings)
    with choice.open_lake() as lake, ExitStack() as stack:
        leftovers = find_leftovers(lake, repositories or [], tags=tags, runs=runs)
        # Opened after the listing, so that the orchestrators know the attempt behind every listed branch.
        owners = _owners(stack, choice, lake)
        judged = partial(judge, lake, leftovers, owners, now=time.time(), older_than=age, runs=runs)
        verdicts = judged()
        ended = {}
        if not dry_run and any(verdict.goes for verdict in verdicts):
            if not yes:
                _agree(choice, verdicts)
                # Attempts may have been rerun while the user read the question.
                verdicts = [new if old.goes else old for old, new in zip(verdicts, judged(), strict=True)]
            ended = {one.leftover: error for one, error in remove(lake, verdicts)}
    rows = [_row(verdict, dry_run, ended.get(verdict.leftover)) for verdict in verdicts]
    if as_json:
        output.data({"dry_run": dry_run, "leftovers": rows})
    else:
        _show(rows)
    if any(ended.values()):
        raise typer.Exit(output.FAILED)


def _agree(choice: ServerChoice, verdicts: Sequence[Verdict]) -> None:
    """Show what would be removed, and ask for confirmation."""
    going = [verdict for verdict in verdicts if verdict.goes]
    for verdict in going:
        one = verdict.leftover
        output.note(f"would remove: {one.repository}/{one.name} ({verdict.why})")
    choice.agree_everywhere(f"Remove {len(going)} branches and tags?")


def _owners(stack: ExitStack, choice: ServerChoice, lake: Lake) -> Owners:
    """Return the sources in which a branch's owner is looked up: the lake's map runs, and its orchestrators."""
    embedded, settings = not choice.remote, choice.settings
    orchestrators = open_local_orchestrators(settings) if embedded else [open_conductor(settings)]
    for orchestrator in orchestrators:
        stack.callback(orchestrator.close)
    # Maps come first: their tasks are recognized by name, so no orchestrator is asked about them.
    return Owners([MapRows(lake), *orchestrators], complete=embedded)


def _row(verdict: Verdict, dry_run: bool, error: LakeError | None) -> dict[str, Any]:
    one = verdict.leftover
    action = "keep" if not verdict.goes else "failed" if error else "would remove" if dry_run else "removed"
    return {
        "repository": one.repository,
        "kind": one.kind,
        "name": one.name,
        "commit": one.commit,
        "task_id": one.owner.task_id if one.owner else None,
        "action": action,
        "why": str(error) if error else verdict.why,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        output.say(f"{row['action']}: {row['repository']}/{row['name']} ({row['why']})")
    kept = sum(row["action"] == "keep" for row in rows)
    failed = sum(row["action"] == "failed" for row in rows)
    gone = len(rows) - kept - failed
    verb = "would be removed" if any(row["action"] == "would remove" for row in rows) else "removed"
    output.say(f"{gone} {verb}, {kept} kept" + (f", {failed} failed" if failed else ""))
