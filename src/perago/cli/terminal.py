"""A bar for transfers that somebody waits for: on a terminal only, on stderr.

How `--help` shows options and arguments: a flag takes no value, so no type stands beside it.

Typer writes `<bool>` beside flags and `<str>` beside arguments, whose name and text say it better, and braces around
arguments that are required.

A table at the foot of the terminal that is drawn anew while it changes, with lines above it from any thread.

The rule: one draws or prints at a time.  Rich works out where the table begins before it writes a line, and a table that
another thread draws in between would have the line in its last row.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from perago.lake.base import Progress, Upload


@contextmanager
def transfer_bar(what: str, files: Sequence[Upload], *, quiet: bool) -> Iterator[Progress | None]:
    """Show how many bytes of `files` are through; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    # Rich is slow to import, and most output goes without it.
    from rich import progress as bars
    from rich.console import Console

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=sum(file.size for file in files))
        yield lambda _files, size: shown.advance(task, size)


def tidy(command: Any, ctx: Any) -> None:
    """Take the types that say nothing off a command's help, and off that of the commands below it."""
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
            parameter.get_usage_pieces = _usage(parameter)
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _metavar(parameter, ctx)
    for inner in getattr(command, "commands", {}).values():
        tidy(inner, ctx)


def _metavar(option: Any, ctx: Any) -> str | None:
    """What stands for an option's value where the command names none: a number is N, choices are listed."""
    return "N" if str(option.display_type_rich(ctx)).startswith("<int") else None


def _usage(argument: Any) -> Callable[[Any], list[str]]:
    """How a usage line names an argument: as docs do."""
    name = argument.metavar
    text = f"{name}…" if argument.nargs == -1 and "…" not in name and " " not in name else name
    return lambda ctx: [text if argument.required or text.startswith("[") else f"[{text}]"]


def _no_type(ctx: Any) -> None:
    """What typer asks an argument for."""


class _Terminal(Console):
    """A console whose output comes from one thread at a time, from the first look at what is there to the last byte."""

    def __init__(self, **options: Any) -> None:
        self.turn = threading.RLock()
        super().__init__(**options)

    def __enter__(self) -> _Terminal:
        self.turn.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self.turn.release()


class LiveTable(Live):
    """The table; `update` draws it, `console` prints above it, and so does what is written to stderr meanwhile."""

    def __init__(self, **options: Any) -> None:
        self._terminal = _Terminal(stderr=True, **options)
        # Not by a thread of its own, which would take the two locks in the other order.
        super().__init__(console=self._terminal, auto_refresh=False, transient=True)

    # The terminal's lock before the table's own, as printing takes them.

    def start(self, refresh: bool = False) -> None:
        """Begin to draw."""
        with self._terminal.turn:
            super().start(refresh)

    def stop(self) -> None:
        """Take the table away."""
        with self._terminal.turn:
            super().stop()

    def update(self, renderable: RenderableType, *, refresh: bool = True) -> None:
        """Draw it as it is given."""
        with self._terminal.turn:
            super().update(renderable, refresh=refresh)

    def refresh(self) -> None:
        """Draw it as it is now."""
        with self._terminal.turn:
            super().refresh()
