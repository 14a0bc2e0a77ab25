"""The progress of `perago map`, and a map run as `perago show` prints it.

Progress is a bar with rate and remaining time on a terminal, or occasional lines elsewhere.  The first failure of each
kind is printed as it arrives, and with `verbose` every failure.  All of this goes to stderr.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from perago.cli import output
from perago.runtime.observe.sanitize import printable

if TYPE_CHECKING:
    from pathlib import Path

    from perago.runtime.maps.rows import RowOutcome
    from perago.runtime.runs.record import MapRun

LINE_SECONDS = 10.0
MOST_FAILURES = 20
"""The maximum number of kinds of failures that are printed. The table of outcomes lists all failures."""


class MapView:
    """Shows the progress of the rows that run in this session."""

    def __init__(
        self,
        rows: int,
        *,
        quiet: bool,
        verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows = rows
        self._quiet = quiet
        self._verbose = verbose
        self._kinds: set[tuple[str, str]] = set()
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
        from perago.runtime.maps.rows import failure_kind

        kind = failure_kind(outcome)
        if self._quiet or (not self._verbose and (kind in self._kinds or len(self._kinds) > MOST_FAILURES)):
            return
        self._kinds.add(kind)
        text = f"{outcome.label}: {outcome.status}: {outcome.reason}"
        if len(self._kinds) > MOST_FAILURES and not self._verbose:
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


@contextmanager
def folding_jvm(log: Path | None, *, verbose: bool) -> Iterator[None]:
    """Fold what a JVM that is started in this block prints on stderr, then and later.  `log` keeps all of it."""
    if verbose:
        yield
        return
    sys.stderr.flush()
    stderr, (read, write) = os.dup(2), os.pipe()
    os.dup2(write, 2)
    os.close(write)
    # The JVM has a copy of the pipe for as long as it lives.
    threading.Thread(
        target=_copy_folded, args=(read, stderr, log), name="perago-jvm-output", daemon=True
    ).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)


def _copy_folded(read: int, stderr: int, log: Path | None) -> None:
    from perago.runtime.runs.format import OutputFold

    fold = OutputFold()
    with open(read, encoding="utf-8", errors="replace") as lines, suppress(OSError):
        for line in lines:
            if log is not None:
                with log.open("a", encoding="utf-8") as kept:
                    kept.write(line)
            for shown in fold(line.rstrip("\n")):
                os.write(stderr, f"{printable(shown)}\n".encode("utf-8", "replace"))


def show_map(root: Path, run: MapRun, *, as_json: bool) -> None:
    """Print a map run: its status, its rows by outcome with their failures, its files, and the command that follows."""
    from dataclasses import asdict

    from perago.cli.options import format_time
    from perago.cli.run_view import STYLES
    from perago.runtime.runs.format import duration
    from perago.runtime.runs.listing import map_row
    from perago.runtime.runs.map_runs import progress_of
    from perago.runtime.runs.record import map_log

    row, progress, log = map_row(root, run), progress_of(root, run.id), map_log(root, run.id)
    if as_json:
        state = {"status": row.status, "ended": row.ended, "seconds": row.seconds, "reason": row.failed}
        figures = {**asdict(progress), "left": progress.left(run)}
        output.data(
            {
                "run": run.id,
                "kind": row.kind,
                **asdict(run),
                **state,
                **figures,
                "outcomes": str(run.outcomes_path),
                "resume": run.resume if row.status != "COMPLETED" else "",
                "log": str(log) if log.is_file() else None,
            }
        )
        return
    took = duration(row.seconds)
    output.say(f"run {run.id}", "bold")
    output.say(f"{run.title} ({run.rows} rows)")
    output.say(f"status {row.status}" + (f" in {took}" if took else ""), STYLES.get(row.status, "red"))
    output.say(f"started {format_time(run.started)} UTC")
    if run.resumed:
        output.say(f"resumed {', '.join(map(format_time, run.resumed))} UTC")
    if run.lake:
        output.say(f"lake: {run.lake}")
    output.say(f"rows: {progress.text(run)}")
    for failure in progress.failures:
        output.say("    " + str(failure).replace("\n", "\n      "), lines=True)
    if progress.kinds > len(progress.failures):
        output.say(f"    … and {progress.kinds - len(progress.failures)} other kinds of failures")
    if row.status == "STOPPED" and row.failed:
        output.say(f"stopped: {row.failed}")
    output.say(f"outcomes: {run.outcomes_path}")
    if log.is_file():
        output.note(f"log: {log}")
    if row.status not in ("RUNNING", "COMPLETED") and run.command:
        output.note(f"next: {run.resume}")


def _format_seconds(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
