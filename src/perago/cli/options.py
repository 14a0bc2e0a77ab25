"""Arguments and options that several commands share, and helpers for printing times and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import taskdef_warnings
from perago.settings import parse_duration

Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET", help="Modules (app.tasks) or files (app/tasks.py).")
]
Repository = Annotated[str, typer.Argument(metavar="REPO", help="The repository.")]
RepositoryAt = Annotated[
    str, typer.Argument(metavar="REPO[@REF]", help="The repository, and a branch, tag or commit (main).")
]
Remote = Annotated[
    bool | None,
    typer.Option(
        "--remote/--local",
        show_default=False,
        help="Use lakeFS and Conductor, or the embedded servers (default unless PERAGO_SERVERS=remote).",
    ),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local/--remote",
        show_default=False,
        help="Use the embedded servers, or lakeFS and Conductor (default).",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before changes.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunName = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="A run's id, or a workflow's; the newest run by default."),
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="The folder of local state, including the embedded servers (PERAGO_ROOT, else .perago).",
    ),
]
PyFiles = Annotated[
    list[Path],
    typer.Option(
        "--py-files",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="A .py or .zip to send to Spark's executors; repeat it for more.",
    ),
]
Warnings = Callable[[TaskDefinition], Iterable[str]]


def duration(text: str) -> float:
    """Parse an AGE on the command line into seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_repository(text: str) -> tuple[str, str | None]:
    """Split REPO[@REF] into its parts. The ref is None if it is missing."""
    repository, at, ref = text.partition("@")
    if not repository or (at and not ref):
        raise typer.BadParameter(f"{text!r} is not REPO[@REF], such as events@main")
    return repository, ref or None


def warn_about(tasks: Iterable[TaskDefinition], of: Warnings = taskdef_warnings) -> None:
    """Print warnings about the tasks' declarations."""
    for task in tasks:
        for text in of(task):
            output.warn(text)


def format_time(seconds: float) -> str:
    """Format a timestamp as human-readable text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
