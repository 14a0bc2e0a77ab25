"""A workflow that starts at a step of another one, with what that one did before the step.

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
from perago.orchestrator.local.decider import decide
from perago.orchestrator.local.parse import parse_workflow
from perago.orchestrator.local.rows import insert_run, load_run, parse_rules, registered_taskdefs, save_run
from perago.orchestrator.local.schedule import add_tasks, tasks_for
from perago.orchestrator.local.state import Env, Run, Task
from perago.orchestrator.local.step_types import STEP_TYPES
from perago.protocol.nearest import did_you_mean, listed

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
