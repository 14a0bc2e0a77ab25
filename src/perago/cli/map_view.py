"""The progress of `perago map`: a bar with rate and remaining time on a terminal, or occasional lines elsewhere.

The first failures are printed as they arrive.  All output goes to stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perago.cli import output
from perago.runtime.observe.sanitize import printable

if TYPE_CHECKING:
    from perago.runtime.maps.rows import RowOutcome

LINE_SECONDS = 10.0
MOST_FAILURES = 20
"""The maximum number of failures that are printed one by one. The table of outcomes lists all of them."""


class MapView:
    """Shows the progress of the rows that run in this session."""

    def __init__(self, rows: int, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows = rows
        self._quiet = quiet
        self._clock = clock
        self._began = self._last_line = clock()
        self._ended = self._failed = 0
        self.seconds = 0.0
        """The duration of the `with` block, once it has ended."""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> MapView:
        self._began = self._last_line = self._clock()
        if not self._quiet and sys.stderr.isatty():
            from rich import progress as bars
            from rich.console import Console

            columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
            self._bar = bars.Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._figures(), total=self._rows)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._clock() - self._began
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def on_outcome(self, outcome: RowOutcome) -> None:
        """Record that a row has ended, and update the display."""
        self._ended += 1
        if not outcome.done:
            self._failed += 1
            self._print_failure(outcome)
        now = self._clock()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._ended, description=self._figures())
        elif not self._quiet and now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            output.note(self._figures())

    def _print_failure(self, outcome: RowOutcome) -> None:
        if self._quiet or self._failed > MOST_FAILURES + 1:
            return
        text = f"{outcome.label}: {outcome.status}: {outcome.reason}"
        if self._failed > MOST_FAILURES:
            text = "more rows failed: the table of outcomes will have all of them"
        if self._bar is not None:
            from rich.text import Text

            self._bar.console.print(Text(printable(text), style="red"), soft_wrap=True)
        else:
            output.note(text, lines=True)

    def _figures(self) -> str:
        """Return the progress: rows, failures, rate, and the remaining time at that rate."""
        seconds = self._clock() - self._began
        text = f"{self._ended} of {self._rows} rows"
        if self._failed:
            text += f", {self._failed} failed"
        if self._ended and seconds > 0:
            rate = self._ended / seconds
            text += f", {rate:.1f} a second, {_format_seconds((self._rows - self._ended) / rate)} left"
        return text


def _format_seconds(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
