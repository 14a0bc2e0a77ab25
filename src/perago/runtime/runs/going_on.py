"""How a run is taken up again: one whose process died, and one whose workflow ended badly.

What is taken anew: the task modules, and on the embedded servers their TaskDefs.  What stays: the workflow's definition and
input, and the outputs of the steps that are done.  Conductor keeps the TaskDefs that a workflow was started with as well.
The rule: the root's lock is held while a run is taken over, so whoever worked for it is dead.
"""

from __future__ import annotations

import json
from pathlib import Path

from perago.orchestrator.base import WorkflowState
from perago.protocol.attempt import IN_PROGRESS
from perago.runtime.root.lock import locked_root
from perago.runtime.runs.record import Run
from perago.runtime.runs.session import Onlooker, RunServers, drive
from perago.runtime.runs.workflow import digest_of
from perago.runtime.servers import Servers, opened
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.start_checks import mend_taskdefs

_FAILED = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT"})


def state_of(servers: Servers, run: Run) -> WorkflowState:
    """Where a run's workflow stands."""
    with opened(servers) as (_, orchestrator):
        return orchestrator.workflow(run.workflow_id)


def go_on(servers: RunServers, run: Run, plan: WorkerPlan) -> frozenset[str]:
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


def drive_again(run: Run, plan: WorkerPlan, onlooker: Onlooker, *, lost: frozenset[str]) -> WorkflowState:
    """Work until the workflow is over; if it ended only for the tasks that a dead process held, it gets another try."""
    ended = drive(run, plan, onlooker)
    if not only_lost(ended, lost):
        return ended
    with opened(plan.spec.servers) as (_, orchestrator):
        orchestrator.retry_workflow(run.workflow_id)
    return drive(run, plan, onlooker)


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
