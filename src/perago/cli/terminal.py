"""A live table on the terminal, with lines above it.

Only one thread draws or prints at a time.  Before Rich writes a line, it computes where the table begins.  If another
thread drew the table in between, the line would end up in the table's last row.

This module imports Rich, which is slow, so import it only if the output is a terminal.
"""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live


class _Terminal(Console):
    """A console that admits only one thread at a time, from reading the table's position to writing the last byte."""

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
    """A table that `update` draws. Output through `console` or to stderr appears above it."""

    def __init__(self, **options: Any) -> None:
        self._terminal = _Terminal(stderr=True, **options)
        # Disable auto refresh: its thread would take the two locks in the opposite order.
        super().__init__(console=self._terminal, auto_refresh=False, transient=True)

    # Like printing, every method takes the terminal's lock before the table's own lock.

    def start(self, refresh: bool = False) -> None:
        """Start drawing the table."""
        with self._terminal.lock:
            super().start(refresh)

    def stop(self) -> None:
        """Stop drawing, and remove the table from the terminal."""
        with self._terminal.lock:
            super().stop()

    def update(self, renderable: RenderableType, *, refresh: bool = True) -> None:
        """Draw a new table in place of the current one."""
        with self._terminal.lock:
            super().update(renderable, refresh=refresh)

    def refresh(self) -> None:
        """Redraw the current table."""
        with self._terminal.lock:
            super().refresh()
