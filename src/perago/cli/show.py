"""`perago show`: show one run in detail: its steps and attempts with their timing, checks and bytes, and the output."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, RunName, format_time
from perago.cli.server_choice import servers_to_read

if TYPE_CHECKING:
    from perago.orchestrator.base import WorkflowState
    from perago.runtime.runs.inspect import LoggedAttempt, RunHandle


def show(run: RunName = None, root: Root = None, remote: Remote = None, as_json: AsJson = False) -> None:
    """Show a run: steps, attempts, times by step, checks, bytes and output; the newest run by default."""
    from perago.cli.run_view import as_json as data_of
    from perago.runtime.runs.inspect import attempts_of, find

    found = find(servers_to_read(root, remote), run)
    with closing(found.open()) as orchestrator:
        state = orchestrator.workflow(found.workflow_id)
        attempts = attempts_of(orchestrator, state)
    if as_json:
        log = str(found.log) if found.log else None
        output.data({"run": found.id, **data_of(state, attempts), "resume": found.resume(state), "log": log})
        return
    for line, style in [*_head(found, state), *_steps(attempts)]:
        output.say(line, style)
    _tail(found, state, attempts, root)


def _head(found: RunHandle, state: WorkflowState) -> Iterator[tuple[str, str | None]]:
    from perago.cli.run_view import STYLES, workflow_seconds
    from perago.runtime.runs.format import duration

    yield f"run {found.id}", "bold"
    yield f"workflow {state.name} ({state.id})", None
    took = duration(workflow_seconds(state))
    resume = found.resume(state)
    status = f"stopped; {resume}" if resume else state.status
    yield f"status {status}" + (f" in {took}" if took else ""), STYLES.get(state.status, "red")
    if state.started is not None:
        yield f"started {format_time(state.started)} UTC", None


def _steps(attempts: Sequence[LoggedAttempt]) -> Iterator[tuple[str, str | None]]:
    from perago.cli.run_view import STYLES
    from perago.runtime.runs.format import record_lines, status_line
    from perago.runtime.runs.inspect import by_step

    for tries in by_step(attempts).values():
        for attempt in tries:
            task = attempt.task
            worker = f"  [{task.worker}]" if task.worker else ""
            yield status_line(task) + worker, STYLES.get(task.status, "red")
            failed = task.reason and task.status not in ("COMPLETED", "SCHEDULED", "IN_PROGRESS")
            for line in (task.reason or "").split("\n") if failed else ():
                yield f"    {line}", None
            for record in attempt.records:
                for line in record_lines(record):
                    yield f"    {line}", None


def _tail(
    found: RunHandle, state: WorkflowState, attempts: Sequence[LoggedAttempt], root: Path | None
) -> None:
    from perago.cli.run_view import output_lines, workflow_reason

    if reason := workflow_reason(state, attempts):
        output.say(reason, lines=True)
    for line in output_lines(state):
        output.say(line, lines=True)
    if found.log:
        output.note(f"log: {found.log}")
    if any(attempt.lines for attempt in attempts):
        where = ["--root", str(root)] if root is not None else []
        where += [] if found.servers.embedded else ["--remote"]
        output.note(f"printed: {shlex.join(['perago', 'logs', found.id, *where])}")
