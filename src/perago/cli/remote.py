"""What commands that may work on the real servers have in common: `--remote`, what it says first, and the question.

The rule: nothing is written to lakeFS or Conductor before its address and what would change there were shown and somebody
said yes, on a terminal or by --yes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perago.cli import output
from perago.cli.changes import shown_changes
from perago.errors import RuntimeConfigError
from perago.settings import LAKEFS_NAMES, Settings, load_settings

if TYPE_CHECKING:
    from perago.connect import Real
    from perago.declare.task import TaskDefinition


def settings_for(root: Path | None, *, remote: bool, yes: bool, lake_only: bool = False) -> Settings:
    """The settings of a command that writes; says so where they name servers that it does not use."""
    if remote and not yes and not sys.stdin.isatty():
        output.refuse(
            "--remote asks before it changes anything, and there is no terminal to ask on: add --yes to go ahead"
        )
    settings = load_settings(os.environ, root=root, remote=remote)
    if not remote:
        note_unused_servers(settings, lake_only=lake_only)
    return settings


def note_unused_servers(settings: Settings, *, lake_only: bool = False) -> None:
    """Say that variables name servers which a command does not use."""
    found = ["lakeFS (LAKECTL_*)"] if settings.lakefs is not None else []
    if settings.conductor is not None and not lake_only:
        found.append("Conductor (CONDUCTOR_SERVER_URL)")
    if found:
        output.note(
            f"{' and '.join(found)} {'are' if len(found) > 1 else 'is'} configured, but not used: "
            f"this works on {settings.root}; add --remote to work on the real servers"
        )


def need_servers(settings: Settings, *, lakefs: bool = False) -> None:
    """Say what is missing where a command goes to Conductor, and perhaps lakeFS, unless it is given --local."""
    missing = {"lakeFS": ", ".join(LAKEFS_NAMES)} if lakefs and settings.lakefs is None else {}
    if settings.conductor is None:
        missing["Conductor"] = "CONDUCTOR_SERVER_URL"
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise RuntimeConfigError(
            f"{' and '.join(missing)} {verb} not configured: set {', '.join(missing.values())}, or add --local to work "
            "on the embedded servers"
        )


def resumes_remotely(root: Path | None, run_id: str | None, *, remote: bool) -> bool:
    """Where a run that is resumed is; its record says so."""
    from perago.runtime.runs.record import find_run

    found = find_run(load_settings(os.environ, root=root).root, run_id)
    if remote and found.embedded:
        raise RuntimeConfigError(f"run {found.id} is on the embedded servers: leave out --remote")
    if not found.embedded:
        output.note(f"run {found.id} is on lakeFS and Conductor")
    return not found.embedded


def agree(question: str, *, yes: bool) -> None:
    """Go on only if somebody wants it."""
    if not yes and not typer.confirm(question, default=False, err=True):
        output.fail("nothing was changed")


def agree_to_run(
    servers: Real,
    tasks: Iterable[TaskDefinition],
    definition: Mapping[str, Any],
    *,
    imports: Iterable[tuple[str, Path]],
    yes: bool,
) -> None:
    """Show the servers and what a run would change on them, and ask."""
    from perago.runtime.registration import plan_changes
    from perago.runtime.server_checks import name_lake, name_orchestrator
    from perago.runtime.servers import opened
    from perago.runtime.workflows.registration import plan_workflows

    with opened(servers) as (lake, orchestrator):
        output.note(f"lake: {name_lake(lake, servers.settings)}")
        output.note(f"orchestrator: {name_orchestrator(orchestrator, servers.settings)}")
        changes = plan_changes(orchestrator, list(tasks))
        workflows = plan_workflows(orchestrator, {"the workflow": definition})
    for name, folder in imports:
        output.note(f"repository {name}: would be created from {folder}")
    for line, style in shown_changes(changes, workflows, planned=True):
        output.note(line, style)
    agree(f"Start workflow {definition['name']} there?", yes=yes)


def open_real_lakefs(settings: Settings) -> Any:
    """lakeFS for a command with --remote, and its address told; closed by the caller."""
    from perago.adapters import open_lakefs
    from perago.runtime.server_checks import name_lake

    if settings.lakefs is None:
        raise RuntimeConfigError(
            f"--remote needs lakeFS: set {', '.join(LAKEFS_NAMES)}, or run `lakectl config`"
        )
    lake = open_lakefs(settings)
    try:
        output.note(f"lake: {name_lake(lake, settings)}")
    except BaseException:
        lake.close()
        raise
    return lake
