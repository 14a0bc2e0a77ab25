"""`perago extract`: print the TaskDefs of modules, or a workflow, as the JSON that Conductor's metadata calls accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import warn_about
from perago.cli.workflow_input import is_workflow, read_definition
from perago.declare.discovery import load_tasks
from perago.declare.taskdef import build_taskdef

ExtractTargets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET…",
        help="Modules (app.tasks) or files (app/tasks.py) with tasks, or one workflow in Python (flows.py:NAME).",
    ),
]


def extract(
    targets: ExtractTargets,
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout."),
    ] = None,
) -> None:
    """Print the TaskDefs of the tasks as a JSON array, or a workflow's JSON. The same source always gives the same bytes."""
    extracted = _workflow(targets) if any(map(is_workflow, targets)) else _taskdefs(targets)
    if file is None:
        output.data(extracted)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(extracted, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        output.fail(f"cannot write {file}: {error.strerror}")
    output.say(str(file))


def _workflow(targets: list[str]) -> dict[str, Any]:
    if len(targets) > 1:
        workflow = next(filter(is_workflow, targets))
        raise typer.BadParameter(f"a workflow is one JSON object of its own: `perago extract {workflow}`")
    return read_definition(targets[0])


def _taskdefs(targets: list[str]) -> list[dict[str, Any]]:
    tasks = load_tasks(targets)
    warn_about(tasks)
    return [build_taskdef(task) for task in tasks]
