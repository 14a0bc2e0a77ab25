"""The view of a running workflow, and its summary at the end, as text or as JSON.

While the workflow runs, a terminal shows a table with the output of bodies above it.  Elsewhere, lines are printed.
All of this goes to stderr.  The output of a body is shown unchanged, even if it looks like markup, except that all
control sequences but colours are removed.  The reason why an attempt failed is shown here only if another attempt
follows.  The last attempt's reason is in the summary.

The summary shows each reason once, at its step, and does not repeat the orchestrator's version of it for the workflow.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import parse_record
from perago.protocol.names import SHORT
from perago.protocol.provenance import is_packages_line
from perago.protocol.steps import PRE_CHECKS, SESSION
from perago.runtime.observe.events import Event
from perago.runtime.observe.sanitize import printable
from perago.runtime.runs import format
from perago.runtime.runs.format import coming_retry, poll_delay
from perago.runtime.runs.inspect import OPEN, LoggedAttempt, by_step, seconds_of, worker_tasks

STYLES = {
    "COMPLETED": "green",
    "IN_PROGRESS": "cyan",
    "SCHEDULED": "dim",
    "TIMED_OUT": "yellow",
    "STOPPED": "yellow",
}
FLUSH_SECONDS = 0.1
SHOWN_WAIT_SECONDS = 0.1

Line = tuple[str, str | None]
"""A line of text and its style."""


class Viewer:
    """Shows a workflow while it runs.

    With `silent`, nothing is shown. With `prints`, the output of bodies is included; with `verbose`, without folding.
    """

    def __init__(
        self,
        *,
        silent: bool,
        prints: bool = True,
        verbose: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._verbose = verbose
        self._folds: defaultdict[str, format.OutputFold] = defaultdict(format.OutputFold)
        self._silent = silent
        self._prints = prints and not silent
        self._clock = clock
        self._live: Any = None
        self._seen: dict[str, str] = {}
        self._sessions: dict[str, float] = {}
        self._explained: set[str] = set()
        self._steps: dict[str, str] = {}
        self._waiting: list[str] = []
        self._flushed = 0.0

    def __enter__(self) -> Viewer:
        if not self._silent and sys.stderr.isatty():
            from perago.cli.terminal import LiveTable

            self._live = LiveTable()
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._flush()
            self._live.stop()

    def on_event(self, event: Event) -> None:
        """Handle a worker event: an attempt's current step or output, the worker's shutdown, or an executor's death."""
        attempt = event.attempt
        if attempt is not None and event.kind in ("step", "doing"):
            self._steps[attempt.task_id] = event.text or event.step
        if attempt is not None and event.kind == "step" and not self._silent:
            self._show_session(attempt, event.step)
        if attempt is not None and event.kind == "printed" and _is_output(event.text):
            for line in [event.text] if self._verbose else self._folds[attempt.task_id](event.text):
                self.print_line(attempt.reference_task_name, attempt.retry_count, line)
        if event.kind in ("draining", "forced") and not self._silent:
            self._print(_stop_message(event))
            self._flush()
        if event.kind == "died" and not self._silent:
            of = f" of {attempt.reference_task_name} at step {event.step!r}" if attempt else ""
            self._print(f"the executor{of} died: {event.text}")

    def _show_session(self, attempt: Attempt, step: str) -> None:
        """Print how long an attempt waited for its Spark session, once the step after it begins."""
        if step == SESSION.name:
            self._sessions.setdefault(attempt.task_id, self._clock())
            return
        waited = self._clock() - self._sessions.pop(attempt.task_id, math.inf)
        if waited >= SHOWN_WAIT_SECONDS:
            name = format.attempt_name(attempt.reference_task_name, attempt.retry_count)
            got = "Spark session ready" if step == PRE_CHECKS.name else "no Spark session"
            self._print(f"{name}: {got} after {format.duration(waited)}")

    def show(self, state: WorkflowState) -> None:
        """Show the current state of the workflow."""
        if self._silent:
            return
        tasks = worker_tasks(state)
        for task in tasks:
            self._print_change(task, state, followed=_is_retried(task, tasks))
        if self._live is not None:
            self._flush()
            self._live.update(_table(state, self._steps, self._clock(), self._live.console.height))

    def print_line(self, reference: str, retry: int, line: str) -> None:
        """Show a line that a body printed."""
        if self._prints:
            self._print(format.body_line(reference, retry, line))

    def _print_change(self, task: TaskState, state: WorkflowState, *, followed: bool) -> None:
        """Print a line if a task's status has changed.

        On a terminal, only the reason for a failed attempt is printed, because the table shows everything else.
        """
        why = task.reason if followed and task.status not in OPEN else None
        if why and task.task_id not in self._explained:
            self._explained.add(task.task_id)
            self._seen[task.task_id] = task.status
            self._print(f"{format.status_line(task)}: {why}{coming_retry(state, task, self._clock())}")
        elif self._seen.get(task.task_id) != task.status:
            self._seen[task.task_id] = task.status
            if self._live is None:
                self._print(format.status_line(task))

    def _print(self, text: str) -> None:
        if self._live is None:
            typer.echo(printable(text, styles=True), err=True)
            return
        # Buffer lines, because every print redraws the table and a body that prints a lot must not slow down the
        # worker.
        self._waiting.append(printable(text, styles=True))
        if self._clock() - self._flushed >= FLUSH_SECONDS:
            self._flush()

    def _flush(self) -> None:
        from rich.text import Text

        self._flushed = self._clock()
        if self._waiting and self._live is not None:
            # Do not interpret markup: a body may print `[red]` literally.
            self._live.console.print(
                Text.from_ansi("\n".join(self._waiting)), highlight=False, soft_wrap=True
            )
            self._waiting.clear()


def _stop_message(event: Event) -> str:
    if event.kind == "forced":
        return "stopping now"
    again = "Ctrl-C again" if event.step == "SIGINT" else f"{event.step} again"
    if not event.text:
        return f"stopping; {again} to stop now"
    return f"finishing step{'s' if ', ' in event.text else ''} {event.text}; {again} to stop now"


def _is_retried(task: TaskState, tasks: list[TaskState]) -> bool:
    return any(one.reference == task.reference and one.seq > task.seq for one in tasks)


def _table(state: WorkflowState, steps: Mapping[str, str], now: float, height: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    title = Text(f"workflow {printable(state.name)}: {state.status} {format.duration(_elapsed(state, now))}")
    table = Table(title=title, title_justify="left", box=None, expand=True)
    for heading in ("step", "status", "time", "published", "now, or why"):
        table.add_column(heading, overflow="fold")
    # Show only the last rows: a table higher than the terminal is cut off at the bottom, where the running steps are.
    for task in worker_tasks(state)[-max(1, height - 3) :]:
        why = (task.reason or "").partition("\n")[0][:80]
        if task.status in OPEN:
            why = steps.get(task.task_id, "") or poll_delay(task, now)
        table.add_row(
            Text(printable(format.attempt_name(task.reference, task.retry_count))),
            Text(task.status, style=STYLES.get(task.status, "red")),
            Text(format.duration(seconds_of(task, now))),
            Text(printable(_published(task))),
            Text(printable(why)),
        )
    return table


def _published(task: TaskState) -> str:
    return format.NOTHING_CHANGED if format.changed_nothing(task) else format.result_location(task, SHORT)


def _elapsed(state: WorkflowState, now: float) -> float | None:
    return None if state.started is None else max(0.0, (state.ended or now) - state.started)


def summary(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> Iterator[Line]:
    """Yield a line for each step, and then the workflow's outcome.

    A step's line shows its last attempt, the number of attempts, the duration and the publication.
    """
    steps = by_step(attempts)
    width = max((len(reference) for reference in steps), default=0)
    for reference, tries in steps.items():
        last = tries[-1].task
        yield f"{reference:<{width}}  {_step_line(tries)}", STYLES.get(last.status, "red")
        for record in (record for one in tries for record in one.records if record.replaced_unsigned):
            warning = format.replaced_unsigned(record.replaced_unsigned)
            yield f"{'':<{width}}  warning: {warning}", "yellow"
        if last.reason and last.status != "COMPLETED":
            for line in last.reason.split("\n"):
                yield f"{'':<{width}}  {line}", None
    took = format.duration(workflow_seconds(state))
    yield (
        f"workflow {state.name}: {state.status}" + (f" in {took}" if took else ""),
        STYLES.get(state.status, "red"),
    )
    if reason := workflow_reason(state, attempts):
        yield f"  {reason}", None
    for line in output_lines(state):
        yield line, None


def workflow_reason(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> str:
    """Return why the workflow did not complete, or "" if it completed or an attempt's reason already says why."""
    explained = any(
        tries[-1].task.reason and tries[-1].task.status != "COMPLETED" for tries in by_step(attempts).values()
    )
    return "" if explained or state.status == "COMPLETED" else state.reason or ""


def output_lines(state: WorkflowState) -> Iterator[str]:
    """Yield the workflow's output. A failed workflow's output is included only if it has a value."""
    if state.output if state.status == "COMPLETED" else any(one is not None for one in state.output.values()):
        yield f"output: {json.dumps(dict(state.output), indent=2, ensure_ascii=False)}"


def as_json(state: WorkflowState, attempts: Sequence[LoggedAttempt]) -> dict[str, Any]:
    """Return the workflow as JSON values, with every attempt."""
    return {
        "workflow_id": state.id,
        "workflow": state.name,
        "status": state.status,
        "reason": state.reason,
        "started": state.started,
        "seconds": workflow_seconds(state),
        "input": dict(state.input),
        "output": dict(state.output),
        "tasks": [_task_json(attempt) for attempt in attempts],
        "packages": {digest: found for one in attempts for digest, found in one.packages.items()},
    }


def workflow_seconds(state: WorkflowState) -> float | None:
    """Return the duration of a workflow in seconds, or None if it has not ended."""
    if state.running or state.started is None or state.ended is None:
        return None
    return round(max(0.0, state.ended - state.started), 3)


def _step_line(tries: Sequence[LoggedAttempt]) -> str:
    last = tries[-1]
    count = "1 attempt " if len(tries) == 1 else f"{len(tries)} attempts"
    took = format.duration(_seconds([one.task for one in tries]))
    moved = format.changes(last.record)
    if last.record is not None and last.record.skipped:
        moved = f"{format.SKIPPED} {last.record.skipped[:SHORT]}"
    elif not moved and format.changed_nothing(last.task):
        moved = format.NOTHING_CHANGED
    published = format.result_location(last.task) + (f" ({moved})" if moved else "")
    return f"{last.task.status:<12}  {count}  {took:>8}  {published}".rstrip()


def _seconds(tasks: Sequence[TaskState]) -> float | None:
    """Return the total duration of all attempts at a step in seconds, or None if it is unknown."""
    known = [took for task in tasks if (took := seconds_of(task)) is not None]
    return sum(known) if known else None


def _task_json(attempt: LoggedAttempt) -> dict[str, Any]:
    task = attempt.task
    took = seconds_of(task)
    return {
        "reference": task.reference,
        "task": task.task_name,
        "task_id": task.task_id,
        "status": task.status,
        "retry_count": task.retry_count,
        "iteration": task.iteration,
        "started": task.started,
        "seconds": None if took is None else round(took, 3),
        "worker": task.worker,
        "input": dict(task.input),
        "output": dict(task.output),
        "reason": task.reason,
        "records": [asdict(record) for record in attempt.records],
    }


def _is_output(line: str) -> bool:
    """Return whether a body printed a line, which may also be about the execution itself."""
    return parse_record(line) is None and not is_packages_line(line)
