"""What commands share: arguments and options, which lake it is, how moments are shown, and the warnings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.connect import Embedded, Real, open_lake, open_local_lake
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import taskdef_warnings
from perago.lake.base import Lake
from perago.runtime.observe.masking import Masker, secrets_of
from perago.settings import load_settings, parse_duration

Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET", help="Modules (app.tasks) or files (app/tasks.py).")
]
Repository = Annotated[str, typer.Argument(metavar="REPO", help="The repository.")]
Ref = Annotated[str, typer.Argument(metavar="REF", help="A branch, tag or commit.")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Use the embedded lake in this folder. The default is lakeFS if it is configured, else .perago.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Remote = Annotated[bool, typer.Option("--remote", help="Work on the real servers: lakeFS and Conductor.")]
RunName = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run's id, or a workflow's; the newest run by default."),
]
RunsRoot = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Where runs and local state are kept (PERAGO_ROOT)."),
]
Warnings = Callable[[TaskDefinition], Iterable[str]]


@contextmanager
def opened(root: Path | None) -> Iterator[Lake]:
    """The lake a command is about, closed afterwards."""
    settings = load_settings(os.environ, root=root)
    lake = open_lake(settings) if root is None else open_local_lake(settings)
    try:
        yield lake
    finally:
        lake.close()


def looked_at(root: Path | None, *, remote: bool) -> Embedded | Real:
    """The servers whose runs a command looks at; those that are not on this machine are named."""
    settings = load_settings(os.environ, root=root)
    if not remote:
        return Embedded(settings)
    if settings.conductor is not None:
        output.note(f"Conductor: {Masker(secrets_of(settings))(settings.conductor.url)}")
    return Real(settings)


def duration(text: str) -> float:
    """An AGE on the command line, in seconds."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def warn_about(tasks: Iterable[TaskDefinition], of: Warnings = taskdef_warnings) -> None:
    """Say what looks wrong in what the tasks declare."""
    for task in tasks:
        for text in of(task):
            output.warn(text)


def when(seconds: float) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
