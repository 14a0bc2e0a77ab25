"""How commands print: data on stdout, everything else on stderr, colour only on a terminal.

The rules: nothing is wrapped or decorated when the output is not a terminal, so that it can be piped.  Nothing that somebody
else wrote, a body, a commit's message or a name, controls a terminal, where a pipe may end too, or makes a line of its own.
As it is, it is in `--json`.

Exit codes: 0 all is well; 1 a declaration is wrong or the command failed; 2 the command line is wrong.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

import typer

from perago.runtime.observe.sanitize import one_line, printable

FAILED = 1
USAGE = 2


def say(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """A line of the answer; several only if it is said that the text may have them, as a failure's reason does."""
    _print(printable(text) if lines else one_line(text), style, err=False)


def say_printed(text: str) -> None:
    """A line that a body printed; its colours stay."""
    _print(printable(text, styles=True), None, err=False)


def note(text: str, style: str | None = None, *, lines: bool = False) -> None:
    """A line beside the answer: what the command works on, or how to go on; `lines` as for `say`."""
    _print(printable(text) if lines else one_line(text), style, err=True)


def warn(text: str) -> None:
    """A line about what looks wrong."""
    _print(printable(f"warning: {text}"), "yellow", err=True)


def error(text: str) -> None:
    """A line about what is wrong, and the lines of a traceback that follow it."""
    _print(printable(f"error: {text}"), "red", err=True)


def fail(text: str) -> NoReturn:
    """Say what is wrong and end the command."""
    error(text)
    raise typer.Exit(FAILED)


def refuse(text: str) -> NoReturn:
    """Say in one line what the command line lacks, and end the command."""
    error(text)
    raise typer.Exit(USAGE)


def confirm(question: str) -> bool:
    """Ask on stderr, and return whether the answer is yes."""
    # Typer's own question writes a space to stdout, where the answer of the command belongs.
    typer.echo(f"{one_line(question)} [y/N]: ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data(value: Any) -> None:
    """The answer as JSON, which holds every text as it is."""
    json_text(json.dumps(value, indent=2, ensure_ascii=False))


def json_text(text: str) -> None:
    """JSON of the answer, on one line or more."""
    # JSON itself writes out what is dangerous, but for a few characters that only some terminals obey.
    typer.echo(printable(text) if sys.stdout.isatty() else text)


def contents(pieces: Iterable[bytes]) -> None:
    """An object's bytes, as they are in a pipe; a terminal gets text that does not control it."""
    if not sys.stdout.isatty():
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        typer.echo(printable(decoder.decode(piece), styles=True), nl=False)
    typer.echo(printable(decoder.decode(b"", final=True)), nl=False)


def _print(text: str, style: str | None, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if style is None or not stream.isatty():
        typer.echo(text, err=err)
        return
    # Rich is slow to import, and most output goes without it.
    from rich.console import Console

    Console(file=stream).print(text, style=style, markup=False, highlight=False, soft_wrap=True)
