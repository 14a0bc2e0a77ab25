"""`perago register`: update the server's TaskDefs and workflows from modules and files, and show the changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Local, Root, Yes, warn_about
from perago.cli.server_choice import ServerChoice, format_changes, need_servers, refuse_without_terminal
from perago.cli.workflow_input import is_workflow, read_definition, refuse_diagnostics
from perago.declare.discovery import load_tasks
from perago.declare.run_steps import with_run_steps
from perago.runtime.registration import (
    TaskDefChange,
    WorkflowChange,
    apply_changes,
    apply_workflows,
    plan_changes,
    plan_workflows,
    registered_names,
)
from perago.settings import load_settings
from perago.workflow.model.requirements import check_definition

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET… [WORKFLOW…]",
        help="Modules (app.tasks) or files (app/tasks.py) with tasks, and workflows (flow.py:NAME, flow.json).",
    ),
]


def register(
    sources: Sources,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, but change nothing.")
    ] = False,
    local: Local = False,
    root: Root = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create or update the TaskDefs of modules, and workflows, on the Conductor at CONDUCTOR_SERVER_URL."""
    if root is not None and not local:
        raise typer.BadParameter("--root is where the embedded orchestrator keeps its state: add --local")
    # Imported here because the adapters import HTTP and S3 libraries, which other commands do not need.
    from perago.backend import open_conductor, open_local_orchestrator

    files = [source for source in sources if is_workflow(source)]
    targets = [source for source in sources if not is_workflow(source)]
    tasks = load_tasks(targets) if targets else []
    warn_about(tasks)
    definitions = {file: read_definition(file) for file in files}
    for file, definition in definitions.items():
        check_definition(definition, file)
        tasks = with_run_steps(tasks, definition)
    settings = load_settings(os.environ, root=root, remote=not local)
    if not local:
        need_servers(settings, lakefs=False)
        refuse_without_terminal("never" if dry_run else "before it writes", yes=yes)
    orchestrator = open_local_orchestrator(settings) if local else open_conductor(settings)
    try:
        if local:
            output.note(f"embedded servers: {settings.root}")
        else:
            output.note(f"Conductor: {orchestrator.address}")
        for file, definition in definitions.items():
            elsewhere = registered_names(orchestrator, definition)
            refuse_diagnostics(definition, tasks, file=file, elsewhere=elsewhere)
        changes = plan_changes(orchestrator, tasks)
        workflows = plan_workflows(orchestrator, definitions)
        if not dry_run:
            _agree(ServerChoice(settings, yes), changes, workflows)
            # Register TaskDefs first: otherwise a workflow could be started before its tasks are registered.
            apply_changes(orchestrator, changes)
            apply_workflows(orchestrator, workflows)
    finally:
        orchestrator.close()
    _print(changes, workflows, dry_run=dry_run, as_json=as_json)


def _agree(
    choice: ServerChoice, changes: Sequence[TaskDefChange], workflows: Sequence[WorkflowChange]
) -> None:
    """Show what would change on Conductor, and ask for confirmation. Does nothing if nothing would change."""
    if not choice.remote or choice.yes or not (_changing(changes) or _changing(workflows)):
        return
    for line, style in format_changes(changes, workflows, planned=True):
        output.note(line, style)
    choice.agree("Register them there?")


def _changing(changes: Sequence[TaskDefChange] | Sequence[WorkflowChange]) -> bool:
    return any(change.action != "keep" for change in changes)


def _print(
    changes: Sequence[TaskDefChange], workflows: Sequence[WorkflowChange], *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        output.data(
            {
                "dry_run": dry_run,
                "tasks": [_as_json(change) for change in changes],
                "workflows": [_as_json(change) | {"version": change.version} for change in workflows],
            }
        )
        return
    for line, style in format_changes(changes, workflows, planned=dry_run):
        output.say(line, style)


def _as_json(change: TaskDefChange | WorkflowChange) -> dict[str, Any]:
    fields = [{"path": path, "new": new, "old": old} for path, new, old in change.fields]
    return {"name": change.name, "action": change.action, "fields": fields}
