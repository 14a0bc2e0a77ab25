"""How a workflow goes on after it ended badly, or after the process that worked for it died.  No I/O.

As Conductor's `retry` does it:

    the last task of a reference      goes on as
    FAILED, TIMED_OUT, CANCELED ...   a new task with retry count + 1, whatever the TaskDef allows, due at once
    a JOIN or DO_WHILE                itself, in progress again
    anything else                     it is

The rule beyond Conductor's: who goes on by hand begins a step's total time anew, and a SWITCH that failed is evaluated
again.  (Conductor takes the SWITCH for done and skips its cases, and goes on counting the total time while nothing runs.)

A workflow that starts at a step of another one, with what that one did before the step.

The tasks before the step are copied as they ended: a new run, whose expressions read the outputs as they were recorded.
The step and all that follows is done again.  Every task's `workspace` is redirected to the branches that the new run
works on; what is recorded stays as it is.  The rule: a run starts only where all before the step is over on every path, so
a step inside a fork or a loop is refused, and the fork or the loop is named instead.
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
from perago.orchestrator.local.state import RUNNING, Env, Run, Task
from perago.orchestrator.local.step_types import STEP_TYPES, goes_on, is_system
from perago.protocol.attempt import IN_PROGRESS
from perago.protocol.suggestions import did_you_mean, listed

_UNDONE = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT", "CANCELED"})


def retry_run(run: Run, env: Env) -> None:
    """Have a run that ended badly go on from what failed in it."""
    if run.status == RUNNING:
        raise OrchestratorRefused(f"workflow {run.id} is still running")
    undone = list(_undone(run).values())
    if run.status == "COMPLETED" or (not undone and run.status != "TIMED_OUT"):
        raise OrchestratorRefused(f"workflow {run.id} is {run.status} and has no task to be tried again")
    run.status, run.reason, run.ended, run.retried_at = RUNNING, None, None, env.now
    run.changed = True
    for task in undone:
        if goes_on(task):
            _reopen(task)
        else:
            add_tasks(run, _next_try(run, task, env))
    decide(run, env)


def replace_orphans(run: Run, reason: str, env: Env) -> None:
    """Time out what is in progress with a dead process, and have each tried again at once.

    A try that was cut off says nothing about the task, so that no retry count can end the workflow here.
    """
    for task in [task for task in run.tasks if task.status == IN_PROGRESS and not is_system(task)]:
        task.end("TIMED_OUT", env.now, reason)
        add_tasks(run, _next_try(run, task, env))
    decide(run, env)


def _undone(run: Run) -> dict[str, Task]:
    """The last task of every reference, where it did not end well, in order."""
    latest = {task.reference: task for task in run.tasks}
    return {reference: task for reference, task in latest.items() if task.status in _UNDONE}


def _reopen(task: Task) -> None:
    if task.status != "CANCELED":
        task.retry_count += 1
    task.status, task.ended, task.reason = IN_PROGRESS, None, None
    task.changed = True


def _next_try(run: Run, task: Task, env: Env) -> list[Task]:
    """The new task, and what begins with it."""
    again = retry_of(run, task, env)
    again.reason = None
    again.available = again.first_scheduled = env.now
    task.retried = task.changed = True
    if not is_system(task):
        return [again]
    step = run.step(task)
    others = [
        other
        for following in STEP_TYPES[step.type].begin(run, step, again, env)
        for other in tasks_for(run, following, env)
    ]
    if task.iteration:
        place_in_loop(others, task.iteration)
    return [again, *others]


Branches = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Recording:
    """A workflow up to a step: `done` before it, and `after`, which is what it did from there on."""

    definition: str
    input: Mapping[str, Any]
    step: str
    done: Sequence[Task]
    after: Sequence[Task]
    branches: Branches
    """The branches that its tasks were redirected to, where it started at a step itself."""


def recording_of(connection: sqlite3.Connection, workflow_id: str, reference: str) -> Recording:
    """What a workflow did before a step; OrchestratorRefused where nobody could start there."""
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
    """Write a run that has done what is recorded, and start its step; returns the run's id."""
    definition = parse_workflow(recorded.definition)
    taskdefs = registered_taskdefs(connection, definition)
    given = json.loads(json.dumps(recorded.input))
    run = Run(env.new_id(), definition, parse_rules(taskdefs), given, env.now, branches=branches)
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
    add_tasks(run, tasks_for(run, definition.step(recorded.step), env))
    decide(run, env)
    save_run(connection, run)
    return run.id


def _check(run: Run, reference: str) -> None:
    definition = run.definition
    known = [step.reference for step in definition.walk()]
    if reference not in known:
        hint = did_you_mean(reference, known, otherwise=f"; there are: {listed(known)}")
        raise OrchestratorRefused(f"workflow {definition.name} has no step {reference!r}{hint}")
    holders = [step for step in definition.holders(reference) if not STEP_TYPES[step.type].one_path]
    if holders:
        raise OrchestratorRefused(
            f"step {reference!r} is inside the {holders[-1].type} {holders[-1].reference!r}, and what runs beside or around "
            f"it cannot be taken apart: start from {holders[-1].reference!r}"
        )
    if run.latest(reference) is None:
        raise OrchestratorRefused(
            f"the run has not come to step {reference!r}, so there is no input to start it from: go on with --resume"
        )
