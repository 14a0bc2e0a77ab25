"""The step types that the embedded orchestrator can run, and the behaviour of each.

    type         its task      starts as        steps that start with it                evaluated
    SIMPLE       a worker's    ready to poll    -                                       never
    SWITCH       SWITCH        in progress      the first step of its case              in each round
    FORK_JOIN    FORK          completed        every arm and the JOIN that follows     never
    JOIN         JOIN          in progress      -                                       between rounds
    DO_WHILE     DO_WHILE      in progress      - (evaluation starts its body)          in each round
    NOOP         NOOP          completed        -                                       never

`HANDLERS` maps each type to its functions; `workflow/model/step_types.py` describes the types.

Scheduling resolves the task's input and returns the steps that start with it.  Evaluating a SWITCH, JOIN or DO_WHILE
returns whether the task changed, and the step that it starts, if any.  A loop's output contains every finished
iteration under its number, plus the current number: `{"iteration": 2, "1": {ref: output}, "2": {ref: output}}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perago.orchestrator.local.expressions import java_text, resolve
from perago.orchestrator.local.js_interpreter import ScriptError, as_condition, run_script
from perago.orchestrator.local.state import Env, Run, Task
from perago.workflow.model.definition import Step, in_iteration
from perago.workflow.model.step_types import (
    DO_WHILE,
    FORK_JOIN,
    JOIN,
    NOOP,
    SIMPLE,
    STEP_TYPES,
    SWITCH,
    shape_of,
)


def task_input(run: Run, step: Step, task_id: str) -> dict[str, Any]:
    """Return a task's resolved input: the TaskDef's input template, overridden by the step's parameters."""
    template: Mapping[str, Any] = run.rules_for(step.name).input_template
    found: dict[str, Any] = resolve({**template, **step.inputs}, run.scope(), task_id=task_id)
    # A value that resolves to null falls back to the unresolved value in the template.
    filled = {key: template.get(key) if value is None else value for key, value in found.items()}
    return _redirect(filled, run.branches)


def _redirect(values: dict[str, Any], branches: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return a task's input with the branches in its `workspace` replaced by the run's own branches."""
    workspace = values.get("workspace")
    if isinstance(workspace, list):
        return {**values, "workspace": [_redirect_workspace(one, branches) for one in workspace]}
    if not isinstance(workspace, Mapping):
        return values
    return {**values, "workspace": _redirect_workspace(workspace, branches)}


def _redirect_workspace(workspace: Any, branches: Mapping[str, Mapping[str, str]]) -> Any:
    if not isinstance(workspace, Mapping):
        return workspace
    branch = branches.get(str(workspace.get("repository")), {}).get(str(workspace.get("branch")))
    return workspace if branch is None else {**workspace, "branch": branch}


def schedule_simple(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Make the task available to workers after the step's delay."""
    task.available = env.now + step.start_delay
    task.input = task_input(run, step, task.id)
    return ()


def schedule_switch(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Choose the case of a SWITCH, and start the first step of that case."""
    task.input = resolve(step.inputs, run.scope())
    try:
        chosen = java_text(_evaluate(step, task.input))
    except ScriptError as error:
        task.end("FAILED", env.now, str(error))
        return ()
    task.input["case"] = chosen
    task.output = {"evaluationResult": [chosen], "selectedCase": chosen}
    steps = step.case(chosen)
    if steps:
        task.input["hasChildren"] = "true"
    return steps[:1]


def schedule_fork(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Complete the task at once, and start the first step of every arm and the JOIN that follows."""
    task.input = resolve(step.inputs, run.scope())
    task.end("COMPLETED", env.now)
    join = run.definition.next_after(step.reference)
    return [*(arm.steps[0] for arm in step.blocks_of("arm")), *([join] if join is not None else [])]


def schedule_join(_run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Record the tasks that the JOIN has to wait for."""
    task.input = {"joinOn": list(step.join_on)}
    return ()


def schedule_loop(run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Resolve the loop's input.  The body starts later, when the loop is evaluated."""
    task.input = task_input(run, step, task.id)
    return ()


def schedule_noop(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Complete the task at once.  The step does nothing, but a JOIN can wait for it."""
    task.input = resolve(step.inputs, run.scope())
    task.end("COMPLETED", env.now)
    return ()


def _evaluate(step: Step, values: Mapping[str, Any]) -> Any:
    if step.evaluator == "value-param":
        return values.get(step.expression)
    return run_script(step.expression, values)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of evaluating a task.  `starts` is the step to schedule in the task's iteration, if any."""

    changed: bool
    starts: Step | None = None


UNCHANGED = Evaluation(changed=False)
CHANGED = Evaluation(changed=True)


def evaluate_switch(_run: Run, task: Task, env: Env) -> Evaluation:
    """Complete the SWITCH.  Its case was already chosen when it was scheduled."""
    task.end("COMPLETED", env.now)
    return CHANGED


def evaluate_join(run: Run, task: Task, env: Env) -> Evaluation:
    """Copy the outputs available so far, and end the JOIN when all the tasks that it waits for have finished."""
    wanted = list(task.input["joinOn"])
    if task.iteration:
        wanted = [in_iteration(reference, task.iteration) for reference in wanted]
    joined = {reference: run.latest(reference) for reference in wanted}
    failures: list[str] = []
    for reference, other in joined.items():
        if other is None:
            continue
        if other.output and task.output.get(reference) != other.output:
            task.output[reference] = dict(other.output)
            task.changed = True
        if other.status == "COMPLETED_WITH_ERRORS" and run.step(other).optional:
            failures.append(f"{other.name}/{other.id}")
    if any(other is None or not other.over for other in joined.values()):
        return UNCHANGED
    if failures:
        task.end("COMPLETED_WITH_ERRORS", env.now, f"{' '.join(failures)} completed with errors")
    else:
        task.end("COMPLETED", env.now)
    return CHANGED


def evaluate_loop(run: Run, loop: Task, env: Env) -> Evaluation:
    """Start the next iteration of the loop's body, or end the loop if its condition is false."""
    step = run.step(loop)
    body = step.inside()
    current = {
        task.reference: task
        for task in run.tasks
        if task.step_reference in body and task.iteration == loop.iteration
    }
    if not current:
        return _start_iteration(loop, step)
    if not _iteration_is_over(run, step, loop.iteration, current):
        return UNCHANGED
    loop.output[str(loop.iteration)] = {task.step_reference: task.output for task in current.values()}
    try:
        repeat = as_condition(run_script(step.loop_condition, _condition_input(run, loop, step)))
    except ScriptError as error:
        reason = f"Unable to evaluate condition {step.loop_condition}, exception {error}"
        loop.end("FAILED_WITH_TERMINAL_ERROR", env.now, reason)
        return CHANGED
    if repeat:
        return _start_iteration(loop, step)
    loop.end("COMPLETED", env.now)
    return CHANGED


def _start_iteration(loop: Task, step: Step) -> Evaluation:
    loop.iteration += 1
    loop.output["iteration"] = loop.iteration
    loop.changed = True
    return Evaluation(changed=True, starts=step.body[0])


def _iteration_is_over(run: Run, loop: Step, iteration: int, current: Mapping[str, Task]) -> bool:
    if not all(task.over for task in current.values()):
        return False
    if not all(in_iteration(step.reference, iteration) in current for step in loop.body):
        return False
    # A finished task may have a successor that the decider has not scheduled yet.
    for task in current.values():
        following = run.definition.next_after(task.step_reference)
        if following is not None and in_iteration(following.reference, iteration) not in current:
            return False
    return True


def _condition_input(run: Run, loop: Task, step: Step) -> dict[str, Any]:
    values: dict[str, Any] = resolve(step.inputs, run.scope(), task_id=loop.id)
    values[loop.reference] = loop.output
    body = step.inside()
    for task in run.tasks:
        if task.step_reference in body:
            values[task.step_reference] = task.output
    return values


@dataclass(frozen=True, slots=True)
class Handler:
    """The functions that schedule and evaluate tasks of one step type."""

    schedule: Callable[[Run, Step, Task, Env], Sequence[Step]]
    """Sets the task's input, ends the task if it completes at once, and returns the steps that start with it."""
    evaluate: Callable[[Run, Task, Env], Evaluation] | None = None
    between_rounds: bool = False
    named_by_type: bool = False
    """True if tasks of this type are named after the type, not after their step."""
    reopens: bool = False
    """True if resuming the workflow reopens a task of this type instead of creating a new one."""


HANDLERS: Mapping[str, Handler] = {
    SIMPLE: Handler(schedule_simple),
    SWITCH: Handler(schedule_switch, evaluate_switch, named_by_type=True),
    FORK_JOIN: Handler(schedule_fork, named_by_type=True),
    JOIN: Handler(schedule_join, evaluate_join, between_rounds=True, named_by_type=True, reopens=True),
    DO_WHILE: Handler(schedule_loop, evaluate_loop, reopens=True),
    NOOP: Handler(schedule_noop),
}
_SYSTEM: Mapping[str, Handler] = {
    STEP_TYPES[kind].task_type: handler
    for kind, handler in HANDLERS.items()
    if STEP_TYPES[kind].done_by == "orchestrator"
}


def is_system(task: Task) -> bool:
    """Return whether the orchestrator runs the task itself."""
    return task.type in _SYSTEM


def is_loop(task: Task) -> bool:
    """Return whether the task is a whole loop, not one iteration of it."""
    return is_system(task) and shape_of(task.type) == "loop"


def reopens(task: Task) -> bool:
    """Return whether resuming the workflow reopens the task instead of creating a new one."""
    return is_system(task) and _SYSTEM[task.type].reopens


def evaluated_tasks(
    tasks: Sequence[Task], *, between_rounds: bool
) -> list[tuple[Task, Callable[[Run, Task, Env], Evaluation]]]:
    """Return the unfinished tasks to evaluate now, each with its evaluation function."""
    found = []
    for task in tasks:
        handler = _SYSTEM.get(task.type)
        if handler is None or handler.evaluate is None or task.over:
            continue
        if handler.between_rounds == between_rounds:
            found.append((task, handler.evaluate))
    return found
