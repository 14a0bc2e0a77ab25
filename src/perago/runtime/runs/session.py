"""How a run begins, is taken up again, and is driven to its end.

The rule: nothing is written before all that can be checked is, and what a killed run needs to go on is on disk before its
first attempt is polled.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from perago.errors import RuntimeConfigError
from perago.orchestrator.base import WorkflowState
from perago.runtime.branch_head import head_of
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import logging_to
from perago.runtime.root.folder import make_root
from perago.runtime.root.lock import locked_root
from perago.runtime.runs.keeping import end_of, kept_run
from perago.runtime.runs.record import Run, find_run, save_end, save_run
from perago.runtime.runs.workflow import digest_of, side_by_side
from perago.runtime.servers import Servers, opened
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.start_checks import check_lake, mend_taskdefs
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import Settings

LOG_LEVEL = logging.ERROR
"""What the worker of a run logs: the rest is shown as the workflow's progress."""


class RunServers(Servers, Protocol):
    """Servers that a run can be on."""

    def take_over(self, workflow_id: str) -> None:
        """Free a workflow from a process that is known to be dead, where nobody else would."""


class Onlooker(Protocol):
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


def drive(run: Run, plan: WorkerPlan, onlooker: Onlooker) -> WorkflowState:
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
            onlooker.show(state)
            return not state.running

        def heard(event: Event) -> None:
            kept.heard(event)
            onlooker.heard(event)

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
