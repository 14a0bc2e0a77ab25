"""`perago register`: make the server's TaskDefs those of the modules, and show what changes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Targets, warn_about
from perago.declare.discovery import load_tasks
from perago.runtime.registration import Change, apply_changes, plan_changes
from perago.settings import load_settings


def register(
    targets: Targets,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, change nothing.")
    ] = False,
    local: Annotated[bool, typer.Option("--local", help="Use the embedded orchestrator.")] = False,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="With --local: where it keeps its state (PERAGO_ROOT)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create or update the TaskDefs of modules on the Conductor of CONDUCTOR_SERVER_URL."""
    if root is not None and not local:
        raise typer.BadParameter("--root is where the embedded orchestrator keeps its state: add --local")
    # The adapters bring their SDKs along; the other commands start without them.
    from perago.connect import open_conductor, open_local_orchestrator

    tasks = load_tasks(targets)
    warn_about(tasks)
    settings = load_settings(os.environ, root=root)
    orchestrator = open_local_orchestrator(settings) if local else open_conductor(settings)
    try:
        changes = plan_changes(orchestrator, tasks)
        if not dry_run:
            apply_changes(orchestrator, changes)
    finally:
        orchestrator.close()
    if as_json:
        output.data({"dry_run": dry_run, "tasks": [_as_json(change) for change in changes]})
    else:
        for change in changes:
            _show(change, dry_run=dry_run)


def _show(change: Change, *, dry_run: bool) -> None:
    done = {"create": "created", "update": "updated", "keep": "unchanged"}
    planned = {"create": "would be created", "update": "would be updated", "keep": "unchanged"}
    output.say(f"{change.name}: {(planned if dry_run else done)[change.action]}", "bold")
    for line, style in _diff(change):
        output.say(line, style)


def _diff(change: Change) -> Iterator[tuple[str, str]]:
    for path, new, old in change.fields:
        if old is not None:
            yield f"  - {path}: {_compact(old)}", "red"
        if new is not None:
            yield f"  + {path}: {_compact(new)}", "green"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as_json(change: Change) -> dict[str, Any]:
    fields = [{"path": path, "new": new, "old": old} for path, new, old in change.fields]
    return {"name": change.name, "action": change.action, "fields": fields}
