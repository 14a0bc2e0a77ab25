"""What `perago run` shows: a live table on a terminal, a line per change elsewhere, and the end of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.names import SHORT
from perago.runtime.observe.events import Event
from perago.runtime.runs.record import Run
from perago.runtime.runs.retries import coming_retry, waiting

_STYLES = {"COMPLETED": "green", "IN_PROGRESS": "cyan", "SCHEDULED": "dim", "TIMED_OUT": "yellow"}
_OPEN = {"SCHEDULED", "IN_PROGRESS"}
_SYSTEM = {"FORK", "JOIN", "SWITCH", "DO_WHILE", "FORK_JOIN"}


class Viewer:
    """Shows a workflow while it goes on; all of it goes to stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live: Any = None
        self._seen: dict[str, str] = {}
        self._steps: dict[str, str] = {}

    def __enter__(self) -> Viewer:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def heard(self, event: Event) -> None:
        """Note what the worker tells: the step an attempt is at, and executors that die."""
        if event.attempt is not None and event.kind in ("step", "doing"):
            self._steps[event.attempt.task_id] = event.text or event.step
        if event.kind in ("draining", "forced"):
            self._say(_stopping(event))
        if event.kind == "died" and not self._quiet and self._live is None:
            of = f" of {event.attempt.reference_task_name} at step {event.step!r}" if event.attempt else ""
            typer.echo(f"the executor{of} died: {event.text}", err=True)

    def _say(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(text))
        else:
            typer.echo(text, err=True)

    def show(self, state: WorkflowState) -> None:
        """Show where the workflow stands now."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(_table(state, self._steps))
            return
        for task in worker_tasks(state):
            if self._seen.get(task.task_id) != task.status:
                self._seen[task.task_id] = task.status
                typer.echo(_line(task) + coming_retry(state, task, time.time()), err=True)


def _stopping(event: Event) -> str:
    if event.kind == "forced":
        return "stopping now"
    again = "Ctrl-C again" if event.step == "SIGINT" else f"{event.step} again"
    if not event.text:
        return f"stopping; {again} to stop now"
    return f"finishing step{'s' if ', ' in event.text else ''} {event.text}; {again} to stop now"


def worker_tasks(state: WorkflowState) -> list[TaskState]:
    """The attempts: what workers run, as against the orchestrator's own tasks."""
    return [task for task in state.tasks if task.task_type not in _SYSTEM]


def as_json(state: WorkflowState, run: Run) -> dict[str, Any]:
    """The end of a run as data."""
    return {
        "run": run.id,
        "workflow_id": state.id,
        "status": state.status,
        "reason": state.reason,
        "output": dict(state.output),
        "tasks": [
            {
                "reference": task.reference,
                "task": task.task_name,
                "status": task.status,
                "retry_count": task.retry_count,
                "iteration": task.iteration,
                "output": dict(task.output),
                "reason": task.reason,
            }
            for task in worker_tasks(state)
        ],
    }


def summary(state: WorkflowState, run: Run) -> Iterator[tuple[str, str | None]]:
    """The end of a run for people: each step's last attempt, how many it took, and what it published."""
    steps: dict[str, list[TaskState]] = {}
    for task in worker_tasks(state):
        steps.setdefault(task.reference, []).append(task)
    width = max((len(reference) for reference in steps), default=0)
    for reference, attempts in steps.items():
        last = attempts[-1]
        ref = _published(last)
        tries = "1 attempt " if len(attempts) == 1 else f"{len(attempts)} attempts"
        line = f"{reference:<{width}}  {last.status:<12}  {tries}  {ref}".rstrip()
        yield line, _STYLES.get(last.status, "red")
        if last.reason and last.status != "COMPLETED":
            yield f"{'':<{width}}  {last.reason}", None
    yield f"workflow {run.workflow_name}: {state.status}", _STYLES.get(state.status, "red")
    if state.reason and state.status != "COMPLETED":
        yield f"  {state.reason}", None


def _published(task: TaskState, length: int | None = None) -> str:
    workspace = task.output.get("workspace")
    if not isinstance(workspace, dict):
        return ""
    return f"{workspace.get('repository')} {str(workspace.get('ref'))[:length]}"


def _line(task: TaskState) -> str:
    tries = f" (retry {task.retry_count})" if task.retry_count else ""
    # An attempt that is still to come carries the reason of the one before it.
    why = f": {task.reason}" if task.reason and task.status not in _OPEN else ""
    return f"{task.reference}{tries}: {task.status} {_published(task)}".rstrip() + why


def _table(state: WorkflowState, steps: Mapping[str, str]) -> Any:
    from rich.table import Table

    table = Table(title=f"workflow {state.id}: {state.status}", title_justify="left", box=None, expand=True)
    for heading in ("step", "status", "retry", "ref", "now, or why"):
        table.add_column(heading, overflow="fold")
    for task in worker_tasks(state):
        style = _STYLES.get(task.status, "red")
        why = (task.reason or "").partition("\n")[0][:80]
        if task.status in _OPEN:
            why = steps.get(task.task_id, "") or waiting(task, time.time())
        table.add_row(
            task.reference, f"[{style}]{task.status}[/]", str(task.retry_count), _published(task, SHORT), why
        )
    return table
