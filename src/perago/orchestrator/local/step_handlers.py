"""The behaviour of each step type: how its task is scheduled and, if the orchestrator runs it itself, evaluated.

Scheduling resolves the task's input and returns the steps that start with it.  Evaluating a SWITCH, JOIN or DO_WHILE
returns whether the task changed, and the step that it starts, if any.  A loop's output contains every finished
iteration under its number, plus the current number: `{"iteration": 2, "1": {ref: output}, "2": {ref: output}}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perago.orchestrator.local.definition import Step, in_loop
from perago.orchestrator.local.expressions import java_text, resolve
from perago.orchestrator.local.js_interpreter import ScriptError, as_condition, run_script
from perago.orchestrator.local.state import Env, Run, Task


def task_input(run: Run, step: Step, task_id: str) -> dict[str, Any]:
    """Return a task's resolved input: the TaskDef's input template, overridden by the step's parameters."""
    template: Mapping[str, Any] = run.rules_for(step.name).input_template
    found: dict[str, Any] = resolve({**template, **step.input_parameters}, run.scope(), task_id=task_id)
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
    """Choose the case, and start its first step."""
    task.input = resolve(step.input_parameters, run.scope())
    try:
        chosen = java_text(_evaluate(step, task.input))
    except ScriptError as error:
        task.end("FAILED", env.now, str(error))
        return ()
    task.input["case"] = chosen
    task.output = {"evaluationResult": [chosen], "selectedCase": chosen}
    block = step.cases.get(chosen, step.default_case)
    if block:
        task.input["hasChildren"] = "true"
    return block[:1]


def schedule_fork(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Complete the task at once, and start the first step of every branch and the JOIN that follows."""
    task.input = resolve(step.input_parameters, run.scope())
    task.end("COMPLETED", env.now)
    join = run.definition.next_after(step.reference)
    return [*(branch[0] for branch in step.branches), *([join] if join is not None else [])]


def schedule_join(_run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Record the tasks to wait for."""
    task.input = {"joinOn": list(step.join_on)}
    return ()


def schedule_loop(run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Resolve the input.  The loop's body starts when the loop is evaluated."""
    task.input = task_input(run, step, task.id)
    return ()


def schedule_noop(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Complete the task at once.  The step does nothing, but a JOIN can wait for it."""
    task.input = resolve(step.input_parameters, run.scope())
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
    """Complete the task, whose case was chosen when it was scheduled."""
    task.end("COMPLETED", env.now)
    return CHANGED


def evaluate_join(run: Run, task: Task, env: Env) -> Evaluation:
    """Copy the outputs available so far, and end the JOIN when all its tasks are over."""
    wanted = list(task.input["joinOn"])
    if task.iteration:
        wanted = [in_loop(reference, task.iteration) for reference in wanted]
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
    body = run.definition.inside(step)
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
    return Evaluation(changed=True, starts=step.loop_over[0])


def _iteration_is_over(run: Run, loop: Step, iteration: int, current: Mapping[str, Task]) -> bool:
    if not all(task.over for task in current.values()):
        return False
    if not all(in_loop(step.reference, iteration) in current for step in loop.loop_over):
        return False
    # A finished task may have a successor that the decider has not scheduled yet.
    for task in current.values():
        following = run.definition.next_after(task.step_reference)
        if following is not None and in_loop(following.reference, iteration) not in current:
            return False
    return True


def _condition_input(run: Run, loop: Task, step: Step) -> dict[str, Any]:
    values: dict[str, Any] = resolve(step.input_parameters, run.scope(), task_id=loop.id)
    values[loop.reference] = loop.output
    body = run.definition.inside(step)
    for task in run.tasks:
        if task.step_reference in body:
            values[task.step_reference] = task.output
    return values
