"""How commands print: data on stdout, everything else on stderr, colour only on a terminal.

The rules: nothing is wrapped or decorated when the output is not a terminal, so that it can be piped.  On a terminal nothing
that somebody else wrote, a body, a commit's message or a name, controls it.

Exit codes: 0 all is well; 1 a declaration is wrong or the command failed; 2 the command line is wrong.
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

import typer

from perago.runtime.observe.printable import printable

FAILED = 1
USAGE = 2


def say(text: str, style: str | None = None) -> None:
    """A line of the answer."""
    _line(text, style, err=False)


def note(text: str, style: str | None = None) -> None:
    """A line beside the answer: what the command works on, or how to go on."""
    _line(text, style, err=True)


def warn(text: str) -> None:
    """A line about what looks wrong."""
    _line(f"warning: {text}", "yellow", err=True)


def error(text: str) -> None:
    """A line about what is wrong."""
    _line(f"error: {text}", "red", err=True)


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
    typer.echo(f"{printable(question)} [y/N]: ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def data(value: Any) -> None:
    """The answer as JSON."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def _line(text: str, style: str | None, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        typer.echo(text, err=err)
        return
    if style is None:
        typer.echo(printable(text, styles=True), err=err)
        return
    # Rich is slow to import, and most output goes without it.
    from rich.console import Console

    Console(file=stream).print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)
