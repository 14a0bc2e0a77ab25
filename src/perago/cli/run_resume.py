"""Resumes or reruns an earlier run (`perago run --resume` and `--from`), with a worker for the current task code."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perago.cli import output
from perago.cli.workflow_input import check_forced, is_python, read_definition
from perago.errors import TaskDefinitionError

if TYPE_CHECKING:
    from perago.backend import Embedded, Real
    from perago.orchestrator.base import WorkflowState
    from perago.protocol.ledger import Recompute
    from perago.runtime.runs.record import Run
    from perago.runtime.runs.rerun import Sibling
    from perago.runtime.worker.plan import WorkerPlan


def find_completed(servers: Embedded | Real, run_id: str | None) -> tuple[Run, WorkflowState | None]:
    """Return a pair: the run with this id (by default, the newest run), and its state.

    The state is None if the run is not COMPLETED, which means that there is something left to resume.
    """
    from perago.runtime.runs import run

    found = run.find(servers, run_id)
    state = run.state_of(servers.of_run(found.id), found)
    return found, state if state.status == "COMPLETED" else None


def resume_run(
    servers: Embedded | Real, found: Run, recompute: Recompute, *, jobs: int
) -> tuple[WorkerPlan, frozenset[str]]:
    """Resume a run. Returns its worker plan, and the ids of tasks that may still be assigned to a dead process.

    What the run was started with is done again, and `recompute` too.
    """
    from perago.runtime.runs import run

    own = servers.of_run(found.id)
    _check_forced(own, found, recompute)
    plan = _worker(own, found, jobs, found.recompute | recompute)
    if _workflow_changed(found):
        output.warn(
            f"{found.workflow_file} has changed since: the run continues with the workflow that it was started with "
            "(a new `perago run` takes the changed one)"
        )
    return plan, run.resume(own, found, plan)


def from_step(
    servers: Embedded | Real, run_id: str | None, step: str, recompute: Recompute, *, jobs: int
) -> tuple[Run, WorkerPlan, list[Sibling]]:
    """Start a new run from a step in an earlier run. Returns the new run, its worker plan and its branches."""
    from perago.backend import Embedded
    from perago.runtime.runs import run
    from perago.runtime.runs.record import new_run_id
    from perago.runtime.runs.rerun import begin_from

    found = run.find(servers, run_id)
    if not isinstance(servers, Embedded):
        output.fail(
            f"run {found.id} is on Conductor, which cannot start a workflow at step {step!r}: --from needs the embedded "
            f"servers; start a new workflow, or continue with `perago run --resume {found.id}`"
        )
    new_id = new_run_id(time.time())
    own = servers.of_run(new_id)
    _check_forced(servers.of_run(found.id), found, recompute)
    plan = _worker(own, found, jobs, recompute)
    run.check_root(servers.settings)
    new_run, siblings = begin_from(
        found, step, run_id=new_id, servers=(servers.of_run(found.id), own), plan=plan
    )
    output.note(f"run {new_run.id} starts at step {step} of run {found.id}")
    for sibling in siblings:
        output.note(
            f"it works on branch {sibling.name} of {sibling.repository}, made at {sibling.commit}, and not on "
            f"{sibling.branch}"
        )
    return new_run, plan, siblings


def say_how_to_merge(siblings: Sequence[Sibling], options: Sequence[str]) -> None:
    """Print the command that merges each branch of a run that was started at a step. `options` name the servers."""
    for sibling in siblings:
        command = ["perago", "merge", sibling.repository, sibling.name, sibling.origin, *options]
        output.note(
            f"its results are on branch {sibling.name}; merge them into {sibling.origin} with `{shlex.join(command)}`"
        )


def _workflow_changed(found: Run) -> bool:
    from perago.runtime.runs import run
    from perago.workflow.model.requirements import digest_of

    if not is_python(found.workflow_file):
        return run.workflow_changed(found)
    try:
        return digest_of(read_definition(found.workflow_file)) != found.workflow_digest
    except TaskDefinitionError:
        # The object was removed, or is no longer a workflow.
        return True


def _check_forced(own: Embedded | Real, found: Run, recompute: Recompute) -> None:
    from perago.runtime.runs.run import state_of

    if recompute.steps:
        check_forced(state_of(own, found).definition, recompute)


def _worker(servers: Embedded | Real, found: Run, jobs: int, recompute: Recompute) -> WorkerPlan:
    from perago.assembly import assemble_run
    from perago.runtime.runs.run import reload_tasks

    tasks = reload_tasks(found)
    return assemble_run(
        servers, found.targets, tasks, jobs=jobs, side_by_side=found.side_by_side, recompute=recompute
    )
