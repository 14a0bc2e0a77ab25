"""Printing of all commands: data on stdout, everything else on stderr, colour only on a terminal.

Nothing is wrapped or decorated if the output is not a terminal, so that it can be piped.  Foreign text (output of a body, a
commit message, a name) must not control a terminal, where a pipe may end too, nor start a new line.  `--json` contains it
unchanged.

Exit codes: 0 success; 1 a declaration is wrong or the command failed; 2 the command line is wrong.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

from perago.lake.base import Progress, Upload
from perago.runtime.observe.sanitize import one_line, printable

FAILED = 1
USAGE = 2


def say(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """Print a line of the result; `lines` allows several, as in a failure's reason."""
    _print(printable(text) if lines else one_line(text), style, err=False)


def say_printed(text: str) -> None:
    """Print a line that a body printed, with its colours."""
    _print(printable(text, styles=True), None, err=False)


def note(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """Print a line beside the result: what the command works on, or how to continue; `lines` as for `say`."""
    _print(printable(text) if lines else one_line(text), style, err=True)


def warn(text: str) -> None:
    """Print a warning."""
    _print(printable(f"warning: {text}"), "yellow", err=True)


def error(text: str) -> None:
    """Print an error; a traceback may follow on more lines."""
    _print(printable(f"error: {text}"), "red", err=True)


def fail(text: str) -> NoReturn:
    """Print an error and end the command with code 1."""
    error(text)
    raise typer.Exit(FAILED)


def refuse(text: str) -> NoReturn:
    """Print an error about the command line and end the command with code 2."""
    error(text)
    raise typer.Exit(USAGE)


def confirm(question: str) -> bool:
    """Ask on stderr, and return whether the answer is yes."""
    # Not typer.confirm, which writes a space to stdout: that is for the command's result.
    typer.echo(f"{one_line(question)} [y/N]: ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data(value: Any) -> None:
    """Print the result as JSON, which contains every text unchanged."""
    json_text(json.dumps(value, indent=2, ensure_ascii=False))


def json_text(text: str) -> None:
    """Print JSON text of one or more lines."""
    # JSON escapes control characters, except a few that only some terminals obey.
    typer.echo(printable(text) if sys.stdout.isatty() else text)


def contents(pieces: Iterable[bytes]) -> None:
    """Write an object's bytes unchanged into a pipe; a terminal gets text that cannot control it."""
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        typer.echo(printable(decoder.decode(piece), styles=True), nl=False)
    typer.echo(printable(decoder.decode(b"", final=True)), nl=False)


@contextmanager
def transfer_bar(what: str, files: Sequence[Upload], *, quiet: bool) -> Iterator[Progress | None]:
    """Show how many bytes of `files` are transferred, on stderr.  Yields None if `quiet` or without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    # Imported here: it is slow to import, and most output does not need it.
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=sum(file.size for file in files))
        yield lambda _files, size: shown.advance(task, size)


def _print(text: str, style: str | None, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if style is None or not stream.isatty():
        typer.echo(text, err=err)
        return
    # Imported here: Rich is slow to import, and most output does not need it.
    from rich.console import Console

    Console(file=stream).print(text, style=style, markup=False, highlight=False, soft_wrap=True)
