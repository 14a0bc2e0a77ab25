"""How a run begins, is taken up again, and is driven to its end.

The rule: nothing is written before all that can be checked is, and what a killed run needs to go on is on disk before its
first attempt is polled.

How a run is taken up again: one whose process died, and one whose workflow ended badly.

What is taken anew: the task modules, and on the embedded servers their TaskDefs.  What stays: the workflow's definition and
input, and the outputs of the steps that are done.  Conductor keeps the TaskDefs that a workflow was started with as well.
The rule: the root's lock is held while a run is taken over, so whoever worked for it is dead.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perago.errors import RuntimeConfigError
from perago.orchestrator.base import WorkflowState
from perago.protocol.attempt import IN_PROGRESS
from perago.runtime.lake_lookup import head_of
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import logging_to
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.root.state_dir import locked_root, make_root
from perago.runtime.runs.format import who
from perago.runtime.runs.inspect import worker_tasks
from perago.runtime.runs.log import RunLog
from perago.runtime.runs.record import (
    Run,
    RunEnd,
    find_run,
    forget_end,
    holding,
    log_file,
    save_end,
    save_run,
)
from perago.runtime.runs.workflow import digest_of, side_by_side
from perago.runtime.servers import Servers, opened
from perago.runtime.worker.plan import WorkerPlan, check_lake, mend_taskdefs
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import Settings

LOG_LEVEL = logging.ERROR
"""What the worker of a run logs: the rest is shown as the workflow's progress."""


class RunServers(Servers, Protocol):
    """Servers that a run can be on."""

    def take_over(self, workflow_id: str) -> None:
        """Free a workflow from a process that is known to be dead, where nobody else would."""


class RunObserver(Protocol):
    """Who is shown how a run goes."""

    def show(self, state: WorkflowState) -> None:
        """Where the workflow stands now."""

    def heard(self, event: Event) -> None:
        """What the worker tells."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a workflow starts from; `workspace` is REPO[@BRANCH], whose head becomes the input's `workspace`."""

    definition: Mapping[str, Any]
    input: Mapping[str, Any]
    workspace: str | None = None
    file: str = ""


def check_root(settings: Settings) -> None:
    """Make sure that nobody else works on the root."""
    make_root(settings.root)
    with locked_root(settings.workspace_root):
        return


def begin(run_id: str, plan: WorkerPlan, start: Start) -> Run:
    """Register everything and start the workflow; nothing runs yet."""
    name = start.definition["name"]
    servers = plan.spec.servers
    with opened(servers) as (lake, orchestrator):
        check_lake(lake)
        payload = dict(start.input)
        if start.workspace is not None:
            payload["workspace"] = head_of(lake, start.workspace)
        mend_taskdefs(orchestrator, list(plan.tasks.values()))
        orchestrator.register_workflow(dict(start.definition))
        workflow_id = orchestrator.start_workflow(
            name, version=start.definition.get("version"), input=payload
        )
    begun = Run(
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
    )
    save_run(plan.settings.root, begun)
    return begun


def find(servers: RunServers, run_id: str | None) -> Run:
    """The run of that id, or the newest, if it is on these servers."""
    found = find_run(servers.settings.root, run_id)
    if found.embedded != servers.embedded:
        where = (
            "the embedded servers: give its --root"
            if found.embedded
            else "lakeFS and Conductor: configure them"
        )
        raise RuntimeConfigError(f"run {found.id} is on {where}")
    return found


def drive(run: Run, plan: WorkerPlan, observer: RunObserver) -> WorkflowState:
    """Work until the workflow is over; a signal leaves it running, to be resumed."""
    servers, settings = plan.spec.servers, plan.settings
    with ExitStack() as stack:
        _, orchestrator = stack.enter_context(opened(servers))
        kept = stack.enter_context(kept_run(settings, run))
        stack.enter_context(logging_to(settings, name="run", level=LOG_LEVEL, kept=kept))
        state = orchestrator.workflow(run.workflow_id)

        def over() -> bool:
            nonlocal state
            state = orchestrator.workflow(run.workflow_id)
            kept.show(state)
            observer.show(state)
            return not state.running

        def heard(event: Event) -> None:
            kept.heard(event)
            observer.heard(event)

        if not over():
            with opened(servers) as (lake, own_orchestrator):
                Supervisor(plan, own_orchestrator, lake).run(until=over, on_event=heard)
            over()
        try:
            save_end(settings.root, run.id, end_of(state))
        except OSError as error:
            # Only lists go by it, and the run is over: what came of it is still to be told.
            logging.getLogger("perago.runs").warning("how run %s ended is not kept: %s", run.id, error)
    return state


_FAILED = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT"})


def state_of(servers: Servers, run: Run) -> WorkflowState:
    """Where a run's workflow stands."""
    with opened(servers) as (_, orchestrator):
        return orchestrator.workflow(run.workflow_id)


def resume(servers: RunServers, run: Run, plan: WorkerPlan) -> frozenset[str]:
    """Have the run's workflow go on: what a dead process held is tried again, and so is what failed.

    Returns the ids of the tasks that may still be with a dead process: on Conductor their leases run out first.
    """
    with locked_root(servers.settings.workspace_root), opened(servers) as (_, orchestrator):
        if servers.embedded:
            mend_taskdefs(orchestrator, list(plan.tasks.values()))
        servers.take_over(run.workflow_id)
        state = orchestrator.workflow(run.workflow_id)
        if not state.running and state.status != "COMPLETED":
            orchestrator.retry_workflow(run.workflow_id)
            return frozenset()
        return frozenset(task.task_id for task in state.tasks if task.status == IN_PROGRESS)


def only_lost(state: WorkflowState, lost: frozenset[str]) -> bool:
    """Whether a workflow ended only because its dead process held these tasks, and they have no retries."""
    latest = {task.reference: task for task in state.tasks}
    ended_it = [task for task in latest.values() if task.status in _FAILED]
    return not state.running and bool(ended_it) and all(task.task_id in lost for task in ended_it)


def run_to_end(run: Run, plan: WorkerPlan, observer: RunObserver, *, lost: frozenset[str]) -> WorkflowState:
    """Work until the workflow is over; if it ended only for the tasks that a dead process held, it gets another try."""
    ended = drive(run, plan, observer)
    if not only_lost(ended, lost):
        return ended
    with opened(plan.spec.servers) as (_, orchestrator):
        orchestrator.retry_workflow(run.workflow_id)
    return drive(run, plan, observer)


def workflow_changed(run: Run) -> bool:
    """Whether the file that the workflow came from says something else by now."""
    if not run.workflow_file:
        return False
    try:
        found = json.loads((Path(run.folder) / run.workflow_file).read_text(encoding="utf-8"))
    except OSError:
        return False
    except ValueError:
        return True
    return not isinstance(found, dict) or digest_of(found) != run.workflow_digest


_WELL = frozenset({"COMPLETED", "SKIPPED", "SCHEDULED", "IN_PROGRESS", "CANCELED"})


@contextmanager
def kept_run(settings: Settings, run: Run) -> Iterator[RunLog]:
    """The run's log; for as long as the block runs, everybody can see that the run goes on."""
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
            log = RunLog(file, Masker(secrets_of(settings)))
            log.write(f"run {run.id} of workflow {run.workflow_name}, {run.workflow_id}; times are in UTC")
            yield log


def end_of(state: WorkflowState) -> RunEnd:
    """How a workflow stands, for listings."""
    return RunEnd(state.status, state.started, state.ended, failed_step(state))


def failed_step(state: WorkflowState) -> str:
    """Which attempt ended the workflow and why, in a line; empty where it did not fail."""
    if state.running or state.status == "COMPLETED":
        return ""
    bad = [task for task in worker_tasks(state) if task.status not in _WELL]
    if not bad:
        return first_line(state.reason)
    return f"{who(bad[-1].reference, bad[-1].retry_count)}: {first_line(bad[-1].reason) or bad[-1].status}"


def first_line(text: str | None) -> str:
    """A text's first line."""
    return (text or "").strip().partition("\n")[0]
