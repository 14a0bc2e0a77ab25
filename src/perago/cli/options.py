"""Arguments and options that several commands share, and helpers for printing times and warnings."""

from __future__ import annotations

import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import taskdef_warnings
from perago.protocol.names import put_branch_name
from perago.settings import SparkFiles, parse_duration

Targets = Annotated[
    list[str], typer.Argument(metavar="TARGET", help="Modules (app.tasks) or files (app/tasks.py).")
]


def _without_ref(text: str) -> str:
    repository, at, ref = text.partition("@")
    if at:
        raise typer.BadParameter(f"give the repository {repository!r} alone, and {ref!r} in its own place")
    return text


Repository = Annotated[str, typer.Argument(metavar="REPO", help="The repository.", callback=_without_ref)]
RepositoryAt = Annotated[
    str, typer.Argument(metavar="REPO[@REF]", help="The repository, and a branch, tag or commit (main).")
]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="M", help="The commit's message.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, but remove nothing.")]
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
    typer.Argument(
        metavar="RUN", help="The id of a run or workflow, or its beginning; the newest by default."
    ),
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
    list[str],
    typer.Option(
        "--py-files",
        metavar="FILE,…",
        help="Python files (.py, .zip, .egg) to send to Spark's executors.",
    ),
]
Archives = Annotated[
    list[str],
    typer.Option(
        "--archives",
        metavar="FILE[#NAME],…",
        help="Archives that Spark's executors unpack.",
    ),
]
Jars = Annotated[list[str], typer.Option("--jars", metavar="FILE,…", help="Jars for Spark.")]
Force = Annotated[
    list[str],
    typer.Option(
        "--force",
        metavar="STEP",
        help="Run this step's body though nothing has changed; repeat it for more.",
    ),
]
Full = Annotated[
    bool, typer.Option("--full", help="Skip no step, and let `changes()` report all files as new.")
]
_PYTHON_FILES = (".py", ".zip", ".egg")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
Warnings = Callable[[TaskDefinition], Iterable[str]]


def spark_files(py_files: Sequence[str], archives: Sequence[str], jars: Sequence[str]) -> SparkFiles:
    """Return the files for Spark, given as in `spark-submit`. From now on, task modules can import the Python files."""
    given = {"--py-files": py_files, "--archives": archives, "--jars": jars}
    split = {
        option: [name for one in names for name in one.split(",") if name] for option, names in given.items()
    }
    for option, names in split.items():
        for name in names:
            remote = option != "--py-files" and _URI.match(name)
            if not remote and not Path(name.partition("#")[0]).is_file():
                raise typer.BadParameter(f"{option}: there is no file {name.partition('#')[0]!r}")
    files = [Path(name).absolute() for name in split["--py-files"]]
    for file in files:
        if file.suffix not in _PYTHON_FILES:
            raise typer.BadParameter(f"--py-files: {file.name!r} is not a .py, .zip or .egg file")
        place = str(file.parent if file.suffix == ".py" else file)
        if place not in sys.path:
            sys.path.append(place)
    return SparkFiles(
        tuple(files),
        jars=tuple(map(_file_uri, split["--jars"])),
        archives=tuple(map(_file_uri, split["--archives"])),
    )


def _file_uri(name: str) -> str:
    path, hash_, fragment = name.partition("#")
    return name if _URI.match(name) else f"{Path(path).absolute().as_uri()}{hash_}{fragment}"


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


def new_put_branches() -> Iterator[str]:
    """Yield unique names for the hidden branches on which `put`, `merge` and `restore` stage their commits."""
    while True:
        yield put_branch_name(time.time(), uuid.uuid4().hex[:12])


def warn_about(tasks: Iterable[TaskDefinition], of: Warnings = taskdef_warnings) -> None:
    """Print warnings about the tasks' declarations."""
    for task in tasks:
        for text in of(task):
            output.warn(text)


def format_time(seconds: float) -> str:
    """Format a timestamp as human-readable text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
