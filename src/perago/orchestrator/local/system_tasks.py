"""The tasks the orchestrator does itself: SWITCH, JOIN and DO_WHILE, one look at a time.

Each look says whether it changed the task, and which step begins by it.  A loop's output holds every finished
iteration under its number, and the number of the current one: `{"iteration": 2, "1": {ref: output}, "2": {ref: output}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perago.orchestrator.local.definition import Step, in_loop
from perago.orchestrator.local.expressions import resolve
from perago.orchestrator.local.script_run import ScriptError, as_condition, run_script
from perago.orchestrator.local.state import Env, Run, Task


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look has brought; `begins` is a step whose turn has come, in the task's iteration."""

    changed: bool
    begins: Step | None = None


AS_BEFORE = Looked(changed=False)
CHANGED = Looked(changed=True)


def look_at_switch(_run: Run, task: Task, env: Env) -> Looked:
    """A choice is made when it begins; there is nothing to wait for."""
    task.end("COMPLETED", env.now)
    return CHANGED


def look_at_join(run: Run, task: Task, env: Env) -> Looked:
    """Take over the outputs that are there; end the JOIN when all of its tasks are over."""
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
        return AS_BEFORE
    if failures:
        task.end("COMPLETED_WITH_ERRORS", env.now, f"{' '.join(failures)} completed with errors")
    else:
        task.end("COMPLETED", env.now)
    return CHANGED


def look_at_loop(run: Run, loop: Task, env: Env) -> Looked:
    """Begin the body, again and again, until the condition says no."""
    step = run.step(loop)
    body = run.definition.inside(step)
    current = {
        task.reference: task
        for task in run.tasks
        if task.step_reference in body and task.iteration == loop.iteration
    }
    if not current:
        return _begin(loop, step)
    if not _iteration_is_over(run, step, loop.iteration, current):
        return AS_BEFORE
    loop.output[str(loop.iteration)] = {task.step_reference: task.output for task in current.values()}
    try:
        goes_on = as_condition(run_script(step.loop_condition, _condition_input(run, loop, step)))
    except ScriptError as error:
        reason = f"Unable to evaluate condition {step.loop_condition}, exception {error}"
        loop.end("FAILED_WITH_TERMINAL_ERROR", env.now, reason)
        return CHANGED
    if goes_on:
        return _begin(loop, step)
    loop.end("COMPLETED", env.now)
    return CHANGED


def _begin(loop: Task, step: Step) -> Looked:
    loop.iteration += 1
    loop.output["iteration"] = loop.iteration
    loop.changed = True
    return Looked(changed=True, begins=step.loop_over[0])


def _iteration_is_over(run: Run, loop: Step, iteration: int, current: Mapping[str, Task]) -> bool:
    if not all(task.over for task in current.values()):
        return False
    if not all(in_loop(step.reference, iteration) in current for step in loop.loop_over):
        return False
    # A task that is over may have a successor which the decider has not come to yet.
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
