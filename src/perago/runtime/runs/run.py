"""Starts a run, drives it to its end, and resumes one whose process died or whose workflow failed.

Everything that can be checked is checked before anything is written, and everything needed to resume a killed run is on
disk before its first attempt is polled.

Resuming reloads the task modules and, on the embedded servers, their TaskDefs.  It keeps the workflow's definition and
input, and the outputs of finished steps.  Conductor also keeps the TaskDefs that the workflow was started with.  The
root's lock is held while a run is taken over, so its former process must be dead.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from perago.backend import Backend, Embedded
from perago.declare.discovery import load_tasks
from perago.declare.run_steps import needs_no_ref
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import WorkflowState
from perago.protocol.attempt import IN_PROGRESS
from perago.protocol.backoff import Backoff
from perago.runtime.folder_upload import ShowProgress, import_folder
from perago.runtime.lake_lookup import expect_workspace, head_of
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import logging_to
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.observe.traces import WorkflowTimes, open_traces
from perago.runtime.root.state_dir import locked_root, make_root
from perago.runtime.runs.format import attempt_name
from perago.runtime.runs.inspect import worker_tasks
from perago.runtime.runs.log import RunLog
from perago.runtime.runs.record import (
    Run,
    RunEnd,
    find_end,
    find_run,
    forget_end,
    holding,
    log_file,
    orchestrator_file,
    resume_command,
    save_end,
    save_run,
    state_is_gone,
)
from perago.runtime.runs.run_input import recorded_input
from perago.runtime.worker.lineage import reporting_lineage
from perago.runtime.worker.plan import WorkerPlan, check_lake, register_missing_taskdefs
from perago.runtime.worker.slots import BACKOFF
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import Settings
from perago.workflow.model.requirements import digest_of, side_by_side

log = logging.getLogger("perago.runs")

LOG_LEVEL = logging.ERROR
"""The level of the worker's log on the terminal during a run.  Everything else is shown as the workflow's progress."""
_MOST_FAILED_STARTS = 5
"""A run ends if so many executors in a row died before an attempt began in one of them."""
_FAILED = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT"})
_NOT_FAILED = frozenset({"COMPLETED", "SKIPPED", "SCHEDULED", "IN_PROGRESS", "CANCELED"})


class RunObserver(Protocol):
    """Receives the progress of a run."""

    def show(self, state: WorkflowState) -> None:
        """Show the current state of the workflow."""

    def on_event(self, event: Event) -> None:
        """Handle an event from the worker."""


@dataclass(frozen=True, slots=True)
class RunInput:
    """A workflow and its input.

    `workspace` is given as REPO[@BRANCH].  The branch's head is passed to the workflow as its `workspace` input.

    `imports` is a sequence of (name, folder) pairs.  Before the run starts, a repository with that name is created from
    each folder.
    """

    definition: Mapping[str, Any]
    input: Mapping[str, Any]
    workspace: str | None = None
    file: str = ""
    imports: Sequence[tuple[str, Path]] = ()


def check_root(settings: Settings) -> None:
    """Check that no other process is using the root."""
    make_root(settings.root)
    with locked_root(settings.workspace_root):
        return


def begin(run_id: str, plan: WorkerPlan, start: RunInput, *, show_progress: ShowProgress) -> Run:
    """Import folders, register everything and start the workflow.  No attempt runs yet."""
    name, payload = start.definition["name"], dict(start.input)
    servers = plan.spec.servers
    with ExitStack() as stack:
        lake = stack.enter_context(closing(servers.open_lake()))
        _import_folders(lake, start, leave_out=plan.settings.root, show_progress=show_progress)
        check_lake(lake)
        if start.workspace is not None:
            payload["workspace"] = head_of(lake, start.workspace, with_ref=not needs_no_ref(start.definition))
        # Opened last: on the embedded servers this creates the run's folder.
        orchestrator = stack.enter_context(closing(servers.open_orchestrator()))
        register_missing_taskdefs(orchestrator, list(plan.tasks.values()))
        orchestrator.register_workflow(dict(start.definition))
        workflow_id = orchestrator.start_workflow(
            name, version=start.definition.get("version"), input=payload
        )
    run = Run(
        run_id,
        workflow_id,
        name,
        plan.spec.targets,
        os.getcwd(),
        embedded=servers.embedded,
        tasks=sorted(plan.tasks),
        side_by_side=side_by_side(start.definition),
        workflow_file=start.file,
        workflow_digest=digest_of(start.definition),
        input=recorded_input(payload, Masker(secrets_of(plan.settings))),
    ).with_recompute(plan.spec.recompute)
    save_run(plan.settings.root, run)
    return run


def _import_folders(lake: Lake, start: RunInput, *, leave_out: Path, show_progress: ShowProgress) -> None:
    if start.imports and start.workspace is not None:
        # Check before importing: a mistake in an option must not leave a repository that blocks the next try.
        expect_workspace(lake, start.workspace, new_repositories=[name for name, _ in start.imports])
    for name, folder in start.imports:
        import_folder(lake, name, folder, leave_out=leave_out, show_progress=show_progress)


def find(servers: Backend, run_id: str | None) -> Run:
    """Return the run with that id, or the newest run.

    Raises `RuntimeConfigError` if the run is not on these servers.
    """
    found = find_run(servers.settings.root, run_id)
    if found.embedded != servers.embedded:
        where = (
            "the embedded servers: give its --root"
            if found.embedded
            else "lakeFS and Conductor: configure them"
        )
        raise RuntimeConfigError(f"run {found.id} is on {where}")
    root = servers.settings.root
    if found.embedded and not orchestrator_file(root, found.id).is_file():
        raise RuntimeConfigError(state_is_gone(found.id, root))
    return found


def drive(run: Run, plan: WorkerPlan, observer: RunObserver) -> WorkflowState:
    """Run a worker until the workflow has finished.  After a signal, the workflow is left unfinished, to be resumed."""
    servers, settings = plan.spec.servers, plan.settings
    earlier = find_end(settings.root, run.id)
    replaced = earlier.replaced_unsigned if earlier is not None else 0
    with ExitStack() as stack:
        lake, orchestrator = stack.enter_context(servers.opened())
        run_log = stack.enter_context(open_run_log(settings, run))
        stack.enter_context(logging_to(settings, name="run", level=LOG_LEVEL, kept=run_log))
        tracer = stack.enter_context(open_traces(os.environ, settings, worker_id=plan.worker_id))
        state = orchestrator.workflow(run.workflow_id)
        failed_starts = 0

        def over() -> bool:
            nonlocal state
            state = orchestrator.workflow(run.workflow_id)
            run_log.show(state)
            observer.show(state)
            return not state.running or failed_starts >= _MOST_FAILED_STARTS

        def on_event(event: Event) -> None:
            nonlocal replaced, failed_starts
            if event.kind == "died" and event.attempt is None:
                failed_starts += 1
            elif event.attempt is not None:
                failed_starts = 0
            if event.kind == "ended" and event.result is not None and event.result.seen.replaced_unsigned:
                replaced += 1
            tracer.on_event(event)
            run_log.on_event(event)
            observer.on_event(event)

        if not over():
            worker = Supervisor(plan, orchestrator, lake, executor_backoff=_executor_backoff(servers))
            with reporting_lineage(os.environ, plan, on_event) as listener:
                worker.run(until=over, on_event=listener)
            over()
            if not state.running and state.started is not None:
                times = (state.started, state.ended)
                tracer.workflow_ended(WorkflowTimes(state.id, run.workflow_name, state.status, *times))
        try:
            save_end(settings.root, run.id, replace(end_of(state), replaced_unsigned=replaced))
        except OSError as error:
            # Only listings use the saved outcome; the caller still needs the result.
            log.warning("could not save the outcome of run %s, listings may not show it: %s", run.id, error)
    if state.running and failed_starts >= _MOST_FAILED_STARTS:
        raise RuntimeConfigError(
            f"no executor of run {run.id} can start, {log_file(settings.root, run.id)} says why; once you have fixed the "
            f"cause, continue with `{resume_command(run, settings.root)}`"
        )
    return state


def _executor_backoff(servers: Backend) -> Backoff:
    """Return the delays before a dead executor is replaced: no longer than those before a retry."""
    longest = servers.limits.longest_delay if isinstance(servers, Embedded) else None
    return BACKOFF if longest is None else replace(BACKOFF, longest=min(BACKOFF.longest, longest))


def state_of(servers: Backend, run: Run) -> WorkflowState:
    """Return the current state of a run's workflow."""
    with servers.opened() as (_, orchestrator):
        return orchestrator.workflow(run.workflow_id)


def resume(servers: Backend, run: Run, plan: WorkerPlan) -> frozenset[str]:
    """Resume the run's workflow: retry the tasks that a dead process held, and those that failed.

    Returns the ids of the tasks that a dead process may still hold.  On Conductor, their leases must expire first.
    """
    with locked_root(servers.settings.workspace_root), servers.opened() as (_, orchestrator):
        if servers.embedded:
            register_missing_taskdefs(orchestrator, list(plan.tasks.values()))
        resumed = replace(run, resumed=[*run.resumed, time.time()])
        save_run(servers.settings.root, resumed.with_recompute(plan.spec.recompute))
        servers.take_over(run.workflow_id)
        state = orchestrator.workflow(run.workflow_id)
        if not state.running and state.status != "COMPLETED":
            orchestrator.retry_workflow(run.workflow_id)
            return frozenset()
        return frozenset(task.task_id for task in state.tasks if task.status == IN_PROGRESS)


def reload_tasks(run: Run) -> list[TaskDefinition]:
    """Load the current version of the run's tasks.

    They are loaded from the folder that the run was started in, which becomes the current folder.
    """
    try:
        os.chdir(run.folder)
    except OSError as error:
        raise RuntimeConfigError(
            f"run {run.id} was started in {run.folder}, where its task modules are, and that folder cannot be "
            f"entered: {error.strerror}"
        ) from error
    return [task for task in load_tasks(run.targets) if run.tasks is None or task.name in run.tasks]


def failed_by_lost_leases_only(state: WorkflowState, lost: frozenset[str]) -> bool:
    """Return whether a workflow failed only because of the tasks in `lost`.

    A dead process held these tasks, and they had no retries left.
    """
    latest = {task.reference: task for task in state.tasks}
    ended_it = [task for task in latest.values() if task.status in _FAILED]
    return not state.running and bool(ended_it) and all(task.task_id in lost for task in ended_it)


def drive_resumed(
    run: Run, plan: WorkerPlan, observer: RunObserver, *, lost: frozenset[str]
) -> WorkflowState:
    """Run a worker until the resumed workflow has finished, like `drive`.

    Retries the workflow once if it failed only because of tasks that a dead process held.
    """
    ended = drive(run, plan, observer)
    if not failed_by_lost_leases_only(ended, lost):
        return ended
    with plan.spec.servers.opened() as (_, orchestrator):
        orchestrator.retry_workflow(run.workflow_id)
    return drive(run, plan, observer)


def workflow_changed(run: Run) -> bool:
    """Return whether the workflow's file has changed since the run started."""
    if not run.workflow_file:
        return False
    try:
        found = json.loads((Path(run.folder) / run.workflow_file).read_text(encoding="utf-8"))
    except OSError:
        return False
    except ValueError:
        return True
    return not isinstance(found, dict) or digest_of(found) != run.workflow_digest


@contextmanager
def open_run_log(settings: Settings, run: Run) -> Iterator[RunLog]:
    """Open the run's log, and hold the run's lock during the block."""
    path = log_file(settings.root, run.id)
    with holding(path.parent):
        try:
            file = path.open("a", encoding="utf-8", errors="replace")
        except OSError as error:
            raise RuntimeConfigError(
                f"cannot write {path}: {error.strerror}; make room, or give --root"
            ) from error
        forget_end(settings.root, run.id)
        with file:
            run_log = RunLog(file, Masker(secrets_of(settings)))
            run_log.write(
                f"run {run.id} of workflow {run.workflow_name}, {run.workflow_id}; times are in UTC"
            )
            yield run_log


def end_of(state: WorkflowState) -> RunEnd:
    """Return the outcome of a workflow, for listings."""
    return RunEnd(state.status, state.started, state.ended, failed_step(state))


def failed_step(state: WorkflowState) -> str:
    """Return the attempt that ended the workflow and the reason, as one line.

    Returns an empty string if the workflow did not fail.
    """
    if state.running or state.status == "COMPLETED":
        return ""
    failed = [task for task in worker_tasks(state) if task.status not in _NOT_FAILED]
    if not failed:
        return first_line(state.reason)
    last = failed[-1]
    return f"{attempt_name(last.reference, last.retry_count)}: {first_line(last.reason) or last.status}"


def first_line(text: str | None) -> str:
    """Return the first line of the text."""
    return (text or "").strip().partition("\n")[0]
