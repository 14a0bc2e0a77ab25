"""From a step to its tasks: what is scheduled when a step's turn comes.

    SIMPLE       one task, to be polled
    SWITCH       itself, and the first step of the case it chose
    FORK_JOIN    itself (over at once), the first step of every branch, and the JOIN that follows
    JOIN         itself, in progress until its tasks are over
    DO_WHILE     itself, in progress; its body is scheduled by the loop

Inputs are resolved here, at the moment of scheduling, and again for every retry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perago.orchestrator.local.definition import DO_WHILE, FORK_JOIN, JOIN, SIMPLE, SWITCH, Step, in_loop
from perago.orchestrator.local.expressions import java_text, resolve
from perago.orchestrator.local.script_run import ScriptError, run_script
from perago.orchestrator.local.state import FORK, Env, Run, Task
from perago.orchestrator.local.taskdef import retry_delay

# What Conductor calls the tasks of these steps; others go by the step's own name.
_NAMES = {SWITCH: SWITCH, FORK_JOIN: FORK, JOIN: JOIN}


def tasks_for(run: Run, step: Step, env: Env) -> list[Task]:
    """The tasks that a step's turn brings, without those the run already has."""
    make = {SIMPLE: _simple, SWITCH: _switch, FORK_JOIN: _fork, JOIN: _join, DO_WHILE: _loop}[step.type]
    begun = {task.reference for task in run.tasks if task.status == "IN_PROGRESS" or task.over}
    return [task for task in make(run, step, env) if task.reference not in begun]


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


def task_input(run: Run, step: Step, task_id: str) -> dict[str, Any]:
    """A task's input: the step's parameters over the TaskDef's template, resolved."""
    template: Mapping[str, Any] = run.rules_for(step.name).input_template
    found: dict[str, Any] = resolve({**template, **step.input_parameters}, run.scope(), task_id=task_id)
    # What resolves to nothing falls back to the template as it is written.
    return {key: template.get(key) if value is None else value for key, value in found.items()}


def _task(run: Run, step: Step, env: Env) -> Task:
    name = _NAMES.get(step.type, step.name)
    return Task(
        id=env.new_id(),
        run_id=run.id,
        reference=step.reference,
        name=name,
        type=name if step.type != DO_WHILE else DO_WHILE,
        status="SCHEDULED",
        scheduled=env.now,
        first_scheduled=env.now,
        available=env.now,
        updated=env.now,
    )


def _system_task(run: Run, step: Step, env: Env) -> Task:
    task = _task(run, step, env)
    task.status = "IN_PROGRESS"
    task.started = env.now
    return task


def _simple(run: Run, step: Step, env: Env) -> list[Task]:
    task = _task(run, step, env)
    task.available = env.now + step.start_delay
    task.input = task_input(run, step, task.id)
    return [task]


def _switch(run: Run, step: Step, env: Env) -> list[Task]:
    task = _system_task(run, step, env)
    task.input = resolve(step.input_parameters, run.scope())
    try:
        chosen = java_text(_evaluate(step, task.input))
    except ScriptError as error:
        task.end("FAILED", env.now, str(error))
        return [task]
    task.input["case"] = chosen
    task.output = {"evaluationResult": [chosen], "selectedCase": chosen}
    block = step.cases.get(chosen, step.default_case)
    if not block:
        return [task]
    task.input["hasChildren"] = "true"
    return [task, *tasks_for(run, block[0], env)]


def _evaluate(step: Step, values: Mapping[str, Any]) -> Any:
    if step.evaluator == "value-param":
        return values.get(step.expression)
    return run_script(step.expression, values)


def _fork(run: Run, step: Step, env: Env) -> list[Task]:
    task = _system_task(run, step, env)
    task.input = resolve(step.input_parameters, run.scope())
    task.end("COMPLETED", env.now)
    tasks = [task]
    for branch in step.branches:
        tasks.extend(tasks_for(run, branch[0], env))
    join = run.definition.next_after(step.reference)
    if join is not None:
        tasks.extend(tasks_for(run, join, env))
    return tasks


def _join(run: Run, step: Step, env: Env) -> list[Task]:
    task = _system_task(run, step, env)
    task.input = {"joinOn": list(step.join_on)}
    return [task]


def _loop(run: Run, step: Step, env: Env) -> list[Task]:
    task = _system_task(run, step, env)
    task.input = task_input(run, step, task.id)
    return [task]
