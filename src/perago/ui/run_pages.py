"""The pages about runs: the list, a single run, and the output of an attempt.  Live content is divided into parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from perago.errors import OrchestratorNotFound
from perago.orchestrator.base import WorkflowState
from perago.runtime.runs.inspect import RunHandle, find, read_attempt
from perago.runtime.runs.listing import PageStart, page_of_runs
from perago.ui.data_source import DataSource
from perago.ui.graph import graph_of
from perago.ui.rendering import Part, escape_hidden, part, render
from perago.ui.step_page import chosen_step, step_page

RUNS = 50


def runs(source: DataSource, request: Request) -> str:
    """Render the list of runs, newest first."""
    at = PageStart(_number(request, "runs"), _number(request, "workflows"))
    return render(
        "runs.html",
        source=source,
        view="runs",
        parts=runs_parts(source, at),
        at=at,
        first=at == PageStart(),
        live=at == PageStart(),
    )


def runs_parts(source: DataSource, start: PageStart) -> list[Part]:
    """Render the live parts of the list of runs."""
    page = page_of_runs(source.servers, RUNS, start)
    return [part("runs", "parts/runs.html", page=page, embedded=source.servers.embedded)]


def run(source: DataSource, request: Request) -> str:
    """Render one run: its graph, and one of its steps in detail."""
    found, step, skip = requested_run(source, request)
    parts, state, over = run_parts(source, found, step, skip)
    return render(
        "run.html",
        source=source,
        view="runs",
        found=found,
        state=state,
        parts=parts,
        over=over,
        step=step,
        skip=skip,
    )


def requested_run(source: DataSource, request: Request) -> tuple[RunHandle, str | None, int]:
    """Return the run and the step named in a request, and how many of the step's newest attempts to skip."""
    found = find(source.servers, request.query_params.get("id", ""))
    return found, request.query_params.get("step"), _number(request, "older")


def run_parts(
    source: DataSource, found: RunHandle, wanted: str | None, skip: int
) -> tuple[list[Part], WorkflowState, bool]:
    """Render the live parts of a run. Also returns the workflow's state, and whether the parts are final."""
    with source.orchestrator_of(found) as orchestrator:
        alive = found.may_progress  # read first: if the run has ended, the state read next is final
        state = orchestrator.workflow(found.workflow_id)
        step = chosen_step(state, wanted)
        page = step_page(orchestrator, state, step, skip) if step is not None else None
    values: dict[str, Any] = {"found": found, "state": state, "step": step}
    over = not state.running or not alive
    head = part("head", "parts/run_head.html", **values, took=_took(state), resume=found.resume(state))
    graph = part("graph", "parts/run_graph.html", **values, nodes=graph_of(state))
    return [head, graph, part("step", "parts/run_step.html", **values, page=page)], state, over


def attempt_output(source: DataSource, request: Request) -> StreamingResponse:
    """Return all lines that an attempt printed, as plain text."""
    found, task_id = (
        find(source.servers, request.query_params.get("id", "")),
        request.query_params.get("task", ""),
    )
    with source.orchestrator_of(found) as orchestrator:
        tasks = [one for one in orchestrator.workflow(found.workflow_id).tasks if one.task_id == task_id]
        if not tasks:
            raise OrchestratorNotFound(f"run {found.id} has no attempt {task_id!r}")
        logged = read_attempt(orchestrator, tasks[0])

    def lines() -> Iterator[str]:
        for line in logged.lines:
            yield escape_hidden(line.text) + "\n"

    return StreamingResponse(lines(), media_type="text/plain; charset=utf-8")


def _took(state: WorkflowState) -> float | None:
    if state.running or state.started is None or state.ended is None:
        return None
    return max(0.0, state.ended - state.started)


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0
