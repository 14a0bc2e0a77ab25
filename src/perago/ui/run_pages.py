"""The pages about runs: the list, a single run or map, and the output of an attempt.

Live content is divided into parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from perago.errors import OrchestratorNotFound
from perago.orchestrator.base import WorkflowState
from perago.runtime.runs.inspect import RunHandle, find, read_attempt, spark_uis_of
from perago.runtime.runs.listing import PageStart, map_row, page_of_runs
from perago.runtime.runs.map_runs import find_map, printed_by_map, progress_of
from perago.runtime.runs.record import MapRun, map_log
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
    """Render one run: its graph, and one of its steps in detail; or a map with its rows."""
    if (mapped := requested_map(source, request)) is not None:
        parts, over = map_parts(source, mapped, request.query_params.get("step"))
        return render("map.html", source=source, view="runs", run=mapped, parts=parts, over=over)
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


def requested_map(source: DataSource, request: Request) -> MapRun | None:
    """Return the map run named in a request, or None if it names no map."""
    return find_map(source.servers, request.query_params.get("id", ""))


def map_parts(source: DataSource, run: MapRun, step: str | None) -> tuple[list[Part], bool]:
    """Render the live parts of a map run. Also returns whether they are final.  `step` is the row asked for, if any."""
    root = source.servers.settings.root
    row, progress = map_row(root, run), progress_of(root, run.id)
    shown = {
        "run": run,
        "row": row,
        "progress": progress,
        "step": step,
        "has_log": map_log(root, run.id).is_file(),
    }
    return [part("map", "parts/map.html", **shown)], row.status != "RUNNING"


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
        uis = spark_uis_of(found, state)
    values: dict[str, Any] = {"source": source, "found": found, "state": state, "step": step}
    over = not state.running or not alive
    standing = {"took": _took(state), "resume": found.resume(state), "status": found.status(state)}
    standing["origin"] = found.run is not None and source.has_run(found.run.from_run or "")
    head = part("head", "parts/run_head.html", **values, **standing)
    graph = part("graph", "parts/run_graph.html", **values, nodes=graph_of(state))
    return [head, graph, part("step", "parts/run_step.html", **values, page=page, uis=uis)], state, over


def attempt_output(source: DataSource, request: Request) -> StreamingResponse:
    """Return all lines that an attempt or a map printed, as plain text."""
    if (mapped := requested_map(source, request)) is not None:
        printed = printed_by_map(source.servers.settings.root, mapped, follow=False)
        return _as_text(source.mask(line) for line in printed)
    found, task_id = (
        find(source.servers, request.query_params.get("id", "")),
        request.query_params.get("task", ""),
    )
    with source.orchestrator_of(found) as orchestrator:
        tasks = [one for one in orchestrator.workflow(found.workflow_id).tasks if one.task_id == task_id]
        if not tasks:
            raise OrchestratorNotFound(f"run {found.id} has no attempt {task_id!r}")
        logged = read_attempt(orchestrator, tasks[0])
    return _as_text(line.text for line in logged.lines)


def _as_text(lines: Iterable[str]) -> StreamingResponse:
    shown = (escape_hidden(line) + "\n" for line in lines)
    return StreamingResponse(shown, media_type="text/plain; charset=utf-8")


def _took(state: WorkflowState) -> float | None:
    if state.running or state.started is None or state.ended is None:
        return None
    return max(0.0, state.ended - state.started)


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0
