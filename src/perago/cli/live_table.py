"""A table at the foot of the terminal that is drawn anew while it changes, with lines above it from any thread.

The rule: one draws or prints at a time.  Rich works out where the table begins before it writes a line, and a table that
another thread draws in between would have the line in its last row.
"""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live


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
