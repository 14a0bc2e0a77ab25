"""Terminal output: the bar of a transfer, the look of `--help`, and a live table with lines above it.

Help: Typer writes `<bool>` beside flags, `<str>` beside arguments, and braces around required arguments; `tidy` removes
them, since names and texts say it better.

Live table: only one thread draws or prints at a time.  Rich computes where the table begins before it writes a line; if
another thread drew the table in between, the line would end up in its last row.
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
    """Show how many bytes of `files` are transferred, on stderr.  Yields None if `quiet` or without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    # Imported here: it is slow to import, and most output does not need it.
    from rich import progress as bars

    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=sum(file.size for file in files))
        yield lambda _files, size: shown.advance(task, size)


def tidy(command: Any, ctx: Any) -> None:
    """Remove uninformative types from the help of a command and its subcommands."""
    for parameter in command.get_params(ctx):
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
            parameter.get_usage_pieces = _usage(parameter)
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _metavar(parameter, ctx)
    for inner in getattr(command, "commands", {}).values():
        tidy(inner, ctx)


def _metavar(option: Any, ctx: Any) -> str | None:
    """Return the placeholder of an option without a metavar: N for a number, None to list choices."""
    return "N" if str(option.display_type_rich(ctx)).startswith("<int") else None


def _usage(argument: Any) -> Callable[[Any], list[str]]:
    """Return the function that names an argument in a usage line, as the docs do."""
    name = argument.metavar
    text = f"{name}…" if argument.nargs == -1 and "…" not in name and " " not in name else name
    return lambda ctx: [text if argument.required or text.startswith("[") else f"[{text}]"]


def _no_type(ctx: Any) -> None:
    """Return no type; typer calls this for an argument."""


class _Terminal(Console):
    """A console that one thread uses at a time, from reading the table's position to the last byte."""

    def __init__(self, **options: Any) -> None:
        self.lock = threading.RLock()
        super().__init__(**options)

    def __enter__(self) -> _Terminal:
        self.lock.acquire()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self.lock.release()


class LiveTable(Live):
    """The table: `update` draws it; `console`, and writes to stderr, print above it."""

    def __init__(self, **options: Any) -> None:
        self._terminal = _Terminal(stderr=True, **options)
        # No auto refresh: its thread would take the two locks in the opposite order.
        super().__init__(console=self._terminal, auto_refresh=False, transient=True)

    # Every method takes the terminal's lock before the table's own, in the same order as printing.

    def start(self, refresh: bool = False) -> None:
        """Start drawing."""
        with self._terminal.lock:
            super().start(refresh)

    def stop(self) -> None:
        """Remove the table."""
        with self._terminal.lock:
            super().stop()

    def update(self, renderable: RenderableType, *, refresh: bool = True) -> None:
        """Draw a new table."""
        with self._terminal.lock:
            super().update(renderable, refresh=refresh)

    def refresh(self) -> None:
        """Redraw the current table."""
        with self._terminal.lock:
            super().refresh()
