"""`perago show`: show one run in detail: its steps and attempts with their timing, checks and bytes, and the output.

A map is shown with its rows by outcome (`map_view`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.cli import output
from perago.cli.map_view import show_map
from perago.cli.options import AsJson, Remote, Root, RunName, format_time
from perago.cli.server_choice import ServerChoice, servers_to_read
from perago.runtime.observe.sanitize import Masker, secrets_of

if TYPE_CHECKING:
    from perago.orchestrator.base import TaskState, WorkflowState
    from perago.runtime.runs.inspect import LoggedAttempt, RunHandle
    from perago.runtime.runs.leases import Lease


def show(run: RunName = None, root: Root = None, remote: Remote = None, as_json: AsJson = False) -> None:
    """Show a run: steps, attempts, times by step, checks, bytes and output, or a map's rows; the newest by default."""
    from perago.cli.run_view import as_json as data_of
    from perago.runtime.runs.control import next_commands
    from perago.runtime.runs.inspect import attempts_of, find, spark_uis_of
    from perago.runtime.runs.leases import leases_of
    from perago.runtime.runs.map_runs import find_map
    from perago.runtime.runs.run_input import masked

    servers = servers_to_read(root, remote)
    if (mapped := find_map(servers, run)) is not None:
        show_map(servers.settings.root, mapped, as_json=as_json)
        return
    where = ServerChoice(servers.settings).options(root)
    found = find(servers, run)
    with closing(found.open()) as orchestrator:
        state = orchestrator.workflow(found.workflow_id)
        attempts = attempts_of(orchestrator, state)
        leases = list(leases_of(found, state, orchestrator.address))
    uis = spark_uis_of(found, state)
    mask = Masker(secrets_of(found.servers.settings))
    if as_json:
        now = {
            **_now(found, state),
            "leases": list(map(asdict, leases)),
            "next": next_commands(found, state, where),
            "spark_uis": uis,
        }
        output.data(masked({**_record_of(found), **data_of(state, attempts), **now}, mask))
        return
    for line, style in [*_head(found, state), *_steps(attempts, uis)]:
        output.say(mask(line), style)
    for lease in leases:
        output.say(_lease_line(lease), "yellow" if lease.worker_gone else None)
    _tail(found, state, attempts, root)
    for command in next_commands(found, state, where):
        output.note(mask(f"next: {command}"))


def _record_of(found: RunHandle) -> dict[str, Any]:
    run = found.run
    return {
        "run": found.id,
        "from_run": run.from_run if run else None,
        "from_step": run.from_step if run else None,
        "resumed": list(run.resumed) if run else [],
        "full": run.full if run else False,
        "forced": list(run.forced) if run else [],
    }


def _now(found: RunHandle, state: WorkflowState) -> dict[str, Any]:
    log = str(found.log) if found.log else None
    return {"status": found.status(state), "resume": found.resume(state), "log": log}


def _head(found: RunHandle, state: WorkflowState) -> Iterator[tuple[str, str | None]]:
    from perago.cli.run_view import STYLES, workflow_seconds
    from perago.runtime.runs.format import duration
    from perago.runtime.runs.run_input import MOST_CHARS, values_text, workspaces_in

    yield f"run {found.id}", "bold"
    yield f"workflow {state.name} ({state.id})", None
    took = duration(workflow_seconds(state))
    resume, status = found.resume(state), found.status(state)
    end = f"; {resume}" if resume else f" in {took}" if took else ""
    yield f"status {status}{end}", STYLES.get(status, "red")
    if state.started is not None:
        yield f"started {format_time(state.started)} UTC", None
    if found.run and found.run.from_run:
        yield f"from step {found.run.from_step} of run {found.run.from_run}", None
    if found.run and found.run.resumed:
        yield f"resumed {', '.join(format_time(at) for at in found.run.resumed)} UTC", None
    if found.run and found.run.recompute:
        yield f"forced {' '.join(found.run.recompute.options)}", None
    given = found.input(state)
    for workspace in workspaces_in(given):
        yield f"workspace {workspace.text()}", None
    if values := values_text(given, MOST_CHARS):
        yield f"input {values}", None


def _steps(attempts: Sequence[LoggedAttempt], uis: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
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
            for line in _input_lines(task):
                yield f"    {line}", None
            if task.task_id in uis:
                yield f"    spark UI: {uis[task.task_id]}", None
            for record in attempt.records:
                for line in record_lines(record):
                    yield f"    {line}", None


def _lease_line(lease: Lease) -> str:
    ends = f", runs out {format_time(lease.runs_out)}" if lease.runs_out is not None else ""
    gone = f"; its worker {lease.worker} is gone" if lease.worker_gone else ""
    return f"lease of {lease.attempt}: last extended {format_time(lease.extended)}{ends} UTC{gone}"


def _input_lines(task: TaskState) -> Iterator[str]:
    from perago.runtime.runs.run_input import MOST_CHARS, params_of, shortened, workspaces_in

    for workspace in workspaces_in(task.input, only="workspace"):
        yield f"input: {workspace.text()}"
    if params := params_of(task.input):
        yield f"params: {shortened(json.dumps(params, ensure_ascii=False), MOST_CHARS)}"


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
