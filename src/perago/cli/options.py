"""What commands share: arguments and options, which lake it is, how moments are shown, and the warnings.

The rule: a command that looks into a lake or writes to one names it on stderr, and looking makes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perago.adapters import has_local_lake, open_lakefs, open_local_lake
from perago.cli import output
from perago.cli.remote import open_real_lakefs
from perago.connect import Embedded, Real
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import taskdef_warnings
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.runtime.observe.masking import Masker, secrets_of
from perago.settings import Settings, load_settings, parse_duration, shown_address

Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET", help="Modules (app.tasks) or files (app/tasks.py).")
]
Repository = Annotated[str, typer.Argument(metavar="REPO", help="The repository.")]
RepositoryAt = Annotated[
    str, typer.Argument(metavar="REPO[@REF]", help="The repository, and a branch, tag or commit (main).")
]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Use the embedded lake in this folder. The default is lakeFS if it is configured, else .perago.",
    ),
]
Remote = Annotated[
    bool, typer.Option("--remote", help="Work on lakeFS and Conductor instead of the embedded servers.")
]
OnConductor = Annotated[
    bool, typer.Option("--remote", help="Look at Conductor instead of the embedded orchestrator.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="With --remote: do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunName = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="A run's id, or a workflow's; the newest run by default."),
]
StateRoot = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", help="Where local state is kept (PERAGO_ROOT, else .perago)."),
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


@contextmanager
def opened(root: Path | None) -> Iterator[Lake]:
    """The lake that a command looks into, named on stderr, and closed afterwards."""
    settings = load_settings(os.environ, root=root)
    if root is None and settings.lakefs is not None:
        output.note(f"lake: lakeFS at {shown_address(settings.lakefs.endpoint)}")
        lake = open_lakefs(settings)
    else:
        lake = _embedded_lake(settings)
    try:
        yield lake
    finally:
        lake.close()


def looked_at(root: Path | None, *, remote: bool) -> Embedded | Real:
    """The servers whose runs a command looks at; those that are not on this machine are named."""
    settings = load_settings(os.environ, root=root, remote=remote)
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


@contextmanager
def writable_lake(settings: Settings, *, remote: bool, make: bool = False) -> Iterator[Lake]:
    """The lake that a command writes to, named on stderr, and closed afterwards; `make` one that is not there."""
    lake: Lake = open_real_lakefs(settings) if remote else _embedded_lake(settings, make=make)
    try:
        yield lake
    finally:
        lake.close()


def _embedded_lake(settings: Settings, *, make: bool = False) -> Lake:
    if not make and not has_local_lake(settings):
        raise RuntimeConfigError(
            f"there is no lake below {settings.root}: go to the folder that has it, name its root with --root, or make "
            "one with `perago put REPO FOLDER --create`"
        )
    output.note(f"lake: embedded, {settings.root / 'lake'}")
    return open_local_lake(settings)


def read_repository(text: str) -> tuple[str, str | None]:
    """The parts of REPO[@REF]."""
    repository, at, ref = text.partition("@")
    if not repository or (at and not ref):
        raise typer.BadParameter(f"{text!r} is not REPO[@REF], such as events@main")
    return repository, ref or None


def warn_about(tasks: Iterable[TaskDefinition], of: Warnings = taskdef_warnings) -> None:
    """Say what looks wrong in what the tasks declare."""
    for task in tasks:
        for text in of(task):
            output.warn(text)


def when(seconds: float) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
