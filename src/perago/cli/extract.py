"""`perago extract`: print the TaskDefs of modules as the JSON array that `POST /metadata/taskdefs` accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import Targets, warn_about
from perago.declare.discovery import load_tasks
from perago.declare.taskdef import build_taskdef


def extract(
    targets: Targets,
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write to this file instead of stdout."),
    ] = None,
) -> None:
    """Print the TaskDefs of the tasks as a JSON array. The same tasks always produce the same bytes."""
    tasks = load_tasks(targets)
    warn_about(tasks)
    taskdefs = [build_taskdef(task) for task in tasks]
    if file is None:
        output.data(taskdefs)
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(taskdefs, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        output.fail(f"cannot write {file}: {error.strerror}")
    output.say(str(file))
