"""What `perago run` shows while it goes on: a table on a terminal, with what bodies print above it; lines elsewhere.

The rules: all of it goes to stderr.  What a body prints is shown as it is, also where it looks like markup; of what would
control the terminal only colours are left.  The reason of an attempt is shown here only if another attempt follows: the last
one's is in the summary.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import typer

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import parse_record
from perago.protocol.names import SHORT
from perago.runtime.observe.events import Event
from perago.runtime.observe.printable import printable
from perago.runtime.runs import words
from perago.runtime.runs.attempts import OPEN, seconds_of, worker_tasks
from perago.runtime.runs.retries import coming_retry, waiting

STYLES = {"COMPLETED": "green", "IN_PROGRESS": "cyan", "SCHEDULED": "dim", "TIMED_OUT": "yellow"}

FLUSH_SECONDS = 0.1


class Viewer:
    """Shows a workflow while it goes on; `silent` shows nothing, `prints` what bodies print too."""

    def __init__(self, *, silent: bool, prints: bool = True, clock: Callable[[], float] = time.time) -> None:
        self._silent = silent
        self._prints = prints and not silent
        self._clock = clock
        self._live: Any = None
        self._seen: dict[str, str] = {}
        self._told: set[str] = set()
        self._steps: dict[str, str] = {}
        self._waiting: list[str] = []
        self._flushed = 0.0

    def __enter__(self) -> Viewer:
        if not self._silent and sys.stderr.isatty():
            from perago.cli.live_table import LiveTable

            self._live = LiveTable()
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._flush()
            self._live.stop()

    def heard(self, event: Event) -> None:
        """Note what the worker tells: the step an attempt is at, what it prints, and executors that die."""
        attempt = event.attempt
        if attempt is not None and event.kind in ("step", "doing"):
            self._steps[attempt.task_id] = event.text or event.step
        if attempt is not None and event.kind == "printed" and parse_record(event.text) is None:
            self.print_line(attempt.reference_task_name, attempt.retry_count, event.text)
        if event.kind in ("draining", "forced") and not self._silent:
            self._say(_stopping(event))
            self._flush()
        if event.kind == "died" and not self._silent:
            of = f" of {attempt.reference_task_name} at step {event.step!r}" if attempt else ""
            self._say(f"the executor{of} died: {event.text}")

    def show(self, state: WorkflowState) -> None:
        """Show where the workflow stands now."""
        if self._silent:
            return
        tasks = worker_tasks(state)
        for task in tasks:
            self._tell(task, state, followed=_followed(task, tasks))
        if self._live is not None:
            self._flush()
            self._live.update(_table(state, self._steps, self._clock(), self._live.console.height))

    def print_line(self, reference: str, retry: int, line: str) -> None:
        """Show a line that a body printed."""
        if self._prints:
            self._say(words.printed(reference, retry, line))

    def _tell(self, task: TaskState, state: WorkflowState, *, followed: bool) -> None:
        """A line for what has changed; on a terminal the table has it, all but why an attempt that is over failed."""
        why = task.reason if followed and task.status not in OPEN else None
        if why and task.task_id not in self._told:
            self._told.add(task.task_id)
            self._seen[task.task_id] = task.status
            self._say(f"{words.status_line(task)}: {why}{coming_retry(state, task, self._clock())}")
        elif self._seen.get(task.task_id) != task.status:
            self._seen[task.task_id] = task.status
            if self._live is None:
                self._say(words.status_line(task))

    def _say(self, text: str) -> None:
        if self._live is None:
            typer.echo(printable(text, styles=True), err=True)
            return
        # Every print draws the table anew: a body that prints much must not hold up the worker.
        self._waiting.append(printable(text, styles=True))
        if self._clock() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        from rich.text import Text

        self._flushed = self._clock()
        if self._waiting and self._live is not None:
            # Not as markup: `[red]` is what the body printed.
            self._live.console.print(
                Text.from_ansi("\n".join(self._waiting)), highlight=False, soft_wrap=True
            )
            self._waiting.clear()


def _stopping(event: Event) -> str:
    if event.kind == "forced":
        return "stopping now"
    again = "Ctrl-C again" if event.step == "SIGINT" else f"{event.step} again"
    if not event.text:
        return f"stopping; {again} to stop now"
    return f"finishing step{'s' if ', ' in event.text else ''} {event.text}; {again} to stop now"


def _followed(task: TaskState, tasks: list[TaskState]) -> bool:
    return any(one.reference == task.reference and one.seq > task.seq for one in tasks)


def _table(state: WorkflowState, steps: Mapping[str, str], now: float, height: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    title = Text(f"workflow {printable(state.name)}: {state.status} {words.duration(_took(state, now))}")
    table = Table(title=title, title_justify="left", box=None, expand=True)
    for heading in ("step", "status", "time", "published", "now, or why"):
        table.add_column(heading, overflow="fold")
    # Those that go on are at the end, and a table that is higher than the terminal is cut there.
    for task in worker_tasks(state)[-max(1, height - 3) :]:
        why = (task.reason or "").partition("\n")[0][:80]
        if task.status in OPEN:
            why = steps.get(task.task_id, "") or waiting(task, now)
        table.add_row(
            Text(printable(words.who(task.reference, task.retry_count))),
            Text(task.status, style=STYLES.get(task.status, "red")),
            Text(words.duration(seconds_of(task, now))),
            Text(printable(words.published(task, SHORT))),
            Text(printable(why)),
        )
    return table


def _took(state: WorkflowState, now: float) -> float | None:
    return None if state.started is None else max(0.0, (state.ended or now) - state.started)
