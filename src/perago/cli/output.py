"""Printing for all commands: data on stdout, everything else on stderr, colour only on a terminal.

If the output is not a terminal, nothing is wrapped or decorated, so that it can be piped.  Untrusted text (the output
of a body, a commit message, a name) must not control a terminal or start a new line.  This also applies to a pipe,
which may end in a terminal.  `--json` output contains such text unchanged.

Exit codes: 0 for success, 1 if a declaration is invalid or the command failed, 2 if the command line is invalid.
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
    """Print a line of the result, or several lines if `lines` is True, for example for a failure reason."""
    _print(printable(text) if lines else one_line(text), style, err=False)


def say_printed(text: str) -> None:
    """Print a line of a body's output, with its colours."""
    _print(printable(text, styles=True), None, err=False)


def note(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """Print a line that is not part of the result: what the command works on, or how to continue.

    `lines` has the same meaning as in `say`.
    """
    _print(printable(text) if lines else one_line(text), style, err=True)


def warn(text: str) -> None:
    """Print a warning."""
    _print(printable(f"warning: {text}"), "yellow", err=True)


def error(text: str) -> None:
    """Print an error. The text may span several lines, for example if it includes a traceback."""
    _print(printable(f"error: {text}"), "red", err=True)


def fail(text: str) -> NoReturn:
    """Print an error and exit with code 1."""
    error(text)
    raise typer.Exit(FAILED)


def refuse(text: str) -> NoReturn:
    """Print an error about the command line and exit with code 2."""
    error(text)
    raise typer.Exit(USAGE)


def confirm(question: str) -> bool:
    """Ask a question on stderr, and return whether the answer is yes."""
    # Do not use typer.confirm: it writes a space to stdout, which is reserved for the command's result.
    typer.echo(f"{one_line(question)} [y/N]: ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data(value: Any) -> None:
    """Print the result as JSON, with all strings unmodified."""
    json_text(json.dumps(value, indent=2, ensure_ascii=False))


def json_text(text: str) -> None:
    """Print JSON text, which may have several lines."""
    # JSON escapes control characters, except for a few that only some terminals obey.
    typer.echo(printable(text) if sys.stdout.isatty() else text)


def contents(pieces: Iterable[bytes]) -> None:
    """Write an object's bytes to stdout: unchanged to a pipe, and to a terminal as text that cannot control it."""
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
    """Show on stderr how many bytes of `files` have been transferred.

    Yields a function that reports progress, or None if `quiet` is set or stderr is not a terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    # Imported here because Rich is slow to import, and most output does not need it.
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
    # Imported here for the same reason as in `transfer_bar`.
    from rich.console import Console

    Console(file=stream).print(text, style=style, markup=False, highlight=False, soft_wrap=True)
