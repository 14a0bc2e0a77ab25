"""From a step to its tasks: what is scheduled when a step's turn comes.

A step's turn brings a task of its own, and the tasks of the steps that begin with it (`step_types` has the table).
Inputs are resolved at the moment of scheduling, and again for every retry.
"""

from __future__ import annotations

from collections.abc import Sequence

from perago.orchestrator.local.definition import Step, in_loop
from perago.orchestrator.local.state import Env, Run, Task
from perago.orchestrator.local.step_begins import task_input
from perago.orchestrator.local.step_types import STEP_TYPES
from perago.orchestrator.local.taskdef import retry_delay


def tasks_for(run: Run, step: Step, env: Env) -> list[Task]:
    """The tasks that a step's turn brings, without those the run already has."""
    task = _task(run, step, env)
    tasks = [task]
    for other in STEP_TYPES[step.type].begin(run, step, task, env):
        tasks.extend(tasks_for(run, other, env))
    begun = {task.reference for task in run.tasks if task.status == "IN_PROGRESS" or task.over}
    return [task for task in tasks if task.reference not in begun]


def retry_of(run: Run, task: Task, env: Env) -> Task:
    """The next try of a failed task: a new task in the same place, due after the TaskDef's delay."""
    rules = run.rules_for(task.name)
    again = _task(run, run.step(task), env)
    again.reference, again.iteration = task.reference, task.iteration
    again.retry_count = task.retry_count + 1
    # Conductor leaves the last failure's reason on the new task until it has one of its own.
    again.reason = task.reason
    again.first_scheduled = task.first_scheduled
    # Later than the one it follows, however coarse the clock: revoking goes by it.
    again.scheduled = max(env.now, task.scheduled + 0.001)
    again.available = env.now + retry_delay(rules, task.retry_count, env.random)
    again.input = {**task.input, **task_input(run, run.step(task), again.id)}
    return again


def place_in_loop(tasks: Sequence[Task], iteration: int) -> None:
    """Mark tasks as belonging to one iteration of a loop."""
    for task in tasks:
        task.reference = in_loop(task.reference, iteration)
        task.iteration = iteration


def add_tasks(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """Put tasks at the end of the run, numbered on from its highest; those it has already are left out."""
    known = {(task.reference, task.retry_count) for task in run.tasks}
    new = [task for task in tasks if (task.reference, task.retry_count) not in known]
    highest = max((task.seq for task in run.tasks), default=0)
    for seq, task in enumerate(new, start=highest + 1):
        task.seq = seq
        run.tasks.append(task)
    return new


def _task(run: Run, step: Step, env: Env) -> Task:
    row = STEP_TYPES[step.type]
    name, system = row.task_name(step), bool(row.task_type)
    return Task(
        id=env.new_id(),
        run_id=run.id,
        reference=step.reference,
        name=name,
        type=row.task_type or name,
        status="IN_PROGRESS" if system else "SCHEDULED",
        scheduled=env.now,
        first_scheduled=env.now,
        available=env.now,
        started=env.now if system else None,
        updated=env.now,
    )
