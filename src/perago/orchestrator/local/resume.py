"""Resumes a run that failed or lost its process, and starts a new run at a step of an old one.

Resuming works like Conductor's `retry`:

    last task of each reference       becomes
    FAILED, TIMED_OUT, CANCELED ...   a new task with retry count + 1, whatever the TaskDef allows, available at once
    a JOIN or DO_WHILE                the same task, in progress again
    anything else                     unchanged

Unlike Conductor, resuming restarts a step's total timeout, and evaluates a failed SWITCH again.  (Conductor treats the
SWITCH as done and skips its cases, and the total timeout keeps running while nothing is executed.)

To start at a step, `start_from` copies the tasks before it, with their results, into a new run.  Expressions in the new
run read these recorded outputs.  The step itself and all later steps run again.  The `workspace` of every task is
redirected to the new run's branches, but the recording is not changed.  All steps before the chosen one must have
finished on every path.  So a step inside a fork or a loop is rejected; the error names the fork or loop to start from
instead.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.decider import add_tasks, decide, place_in_loop, retry_of, tasks_for
from perago.orchestrator.local.parse import parse_workflow
from perago.orchestrator.local.persistence import (
    insert_run,
    load_run,
    parse_rules,
    registered_taskdefs,
    save_run,
)
from perago.orchestrator.local.state import PAUSED, RUNNING, Env, Run, Task
from perago.orchestrator.local.step_handlers import HANDLERS, is_system, reopens
from perago.protocol.attempt import IN_PROGRESS
from perago.protocol.suggestions import did_you_mean, listed

Branches = Mapping[str, Mapping[str, str]]
_UNSUCCESSFUL = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT", "CANCELED"})


def retry_run(run: Run, env: Env) -> None:
    """Resume a failed run at its failed tasks.  Raises `OrchestratorRefused` if it is running or has no such tasks."""
    if run.status in (RUNNING, PAUSED):
        raise OrchestratorRefused(f"workflow {run.id} is still {run.status}")
    failed = _unsuccessful(run)
    if run.status == "COMPLETED" or (not failed and run.status != "TIMED_OUT"):
        raise OrchestratorRefused(f"workflow {run.id} is {run.status} and has no task to retry")
    run.status, run.reason, run.ended, run.retried_at = RUNNING, None, None, env.now
    run.changed = True
    for task in failed:
        if reopens(task):
            _reopen(task)
        else:
            add_tasks(run, _retry_tasks(run, task, env))
    decide(run, env)


def replace_orphans(run: Run, reason: str, env: Env) -> None:
    """Time out the tasks that a dead process was running, and retry each of them at once.

    An interrupted attempt says nothing about the task, so it is retried regardless of the retry limit, and
    cannot end the workflow.
    """
    for task in [task for task in run.tasks if task.status == IN_PROGRESS and not is_system(task)]:
        task.end("TIMED_OUT", env.now, reason)
        add_tasks(run, _retry_tasks(run, task, env))
    decide(run, env)


def _unsuccessful(run: Run) -> list[Task]:
    """Return the last task of each reference, but only if it was unsuccessful.  Keeps the order."""
    latest = {task.reference: task for task in run.tasks}
    return [task for task in latest.values() if task.status in _UNSUCCESSFUL]


def _reopen(task: Task) -> None:
    if task.status != "CANCELED":
        task.retry_count += 1
    task.status, task.ended, task.reason = IN_PROGRESS, None, None
    task.changed = True


def _retry_tasks(run: Run, task: Task, env: Env) -> list[Task]:
    """Create the retry of a task, and the tasks that start with it."""
    retry = retry_of(run, task, env)
    retry.reason = None
    retry.available = retry.first_scheduled = env.now
    task.retried = task.changed = True
    if not is_system(task):
        return [retry]
    step = run.step(task)
    others = [
        other
        for following in HANDLERS[step.type].schedule(run, step, retry, env)
        for other in tasks_for(run, following, env)
    ]
    if task.iteration:
        place_in_loop(others, task.iteration)
    return [retry, *others]


@dataclass(frozen=True, slots=True)
class Recording:
    """The recorded tasks of a workflow, for starting a new run at a step.

    `done` contains the tasks of the steps before that step, and `after` those of the step itself and all later ones.
    """

    definition: str
    input: Mapping[str, Any]
    step: str
    done: Sequence[Task]
    after: Sequence[Task]
    branches: Branches
    """The branches to which the workflow was redirected, if it was itself started at a step of another workflow."""


def recording_of(connection: sqlite3.Connection, workflow_id: str, reference: str) -> Recording:
    """Return the recorded tasks of a workflow, divided into those before a step and the rest.

    Raises `OrchestratorRefused` if no run can start at that step.
    """
    run = load_run(connection, workflow_id)
    _check(run, reference)
    before = run.definition.before(reference)
    latest = {task.reference: task for task in run.tasks if task.step_reference in before}
    open_ = [task.reference for task in latest.values() if not task.over or task.failed]
    if open_:
        raise OrchestratorRefused(
            f"step {reference!r} cannot be started from: {', '.join(open_)} has not ended well"
        )
    (body,) = connection.execute("SELECT definition FROM run WHERE id = ?", (workflow_id,)).fetchone()
    after = [task for task in run.tasks if task.step_reference not in before]
    return Recording(body, run.input, reference, tuple(latest.values()), after, run.branches)


def start_from(connection: sqlite3.Connection, recorded: Recording, branches: Branches, env: Env) -> str:
    """Create a run with the recorded tasks, schedule the step to start at, and return the run's id."""
    definition = parse_workflow(recorded.definition)
    taskdefs = registered_taskdefs(connection, definition)
    input_copy = json.loads(json.dumps(recorded.input))
    run = Run(env.new_id(), definition, parse_rules(taskdefs), input_copy, env.now, branches=branches)
    insert_run(connection, run, recorded.definition, taskdefs)
    for task in sorted(recorded.done, key=lambda task: task.seq):
        run.tasks.append(
            replace(
                task,
                id=env.new_id(),
                run_id=run.id,
                seq=len(run.tasks) + 1,
                executed=True,
                retried=False,
                changed=True,
            )
        )
    add_tasks(run, tasks_for(run, definition.steps[recorded.step], env))
    decide(run, env)
    save_run(connection, run)
    return run.id


def _check(run: Run, reference: str) -> None:
    definition = run.definition
    known = [step.reference for step in definition.walk()]
    if reference not in known:
        hint = did_you_mean(reference, known, otherwise=f"; there are: {listed(known)}")
        raise OrchestratorRefused(f"workflow {definition.name} has no step {reference!r}{hint}")
    # Only one case of a SWITCH runs, and only once, so everything before a step inside it is over.
    holders = [step for step in definition.holders(reference) if step.shape != "switch"]
    if holders:
        raise OrchestratorRefused(
            f"step {reference!r} is inside the {holders[-1].type} {holders[-1].reference!r}, which can only run as a whole: "
            f"start from {holders[-1].reference!r}"
        )
    if run.latest(reference) is None:
        raise OrchestratorRefused(
            f"the run has not reached step {reference!r}, so there is no input to start it from: use --resume"
        )
