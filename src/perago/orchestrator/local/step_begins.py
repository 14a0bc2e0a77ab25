"""How a step's turn begins, by its type: its task's input, and the steps that begin with it.

Inputs are resolved here, at the moment of scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perago.orchestrator.local.definition import Step
from perago.orchestrator.local.expressions import java_text, resolve
from perago.orchestrator.local.script_run import ScriptError, run_script
from perago.orchestrator.local.state import Env, Run, Task


def task_input(run: Run, step: Step, task_id: str) -> dict[str, Any]:
    """A task's input: the step's parameters over the TaskDef's template, resolved."""
    template: Mapping[str, Any] = run.rules_for(step.name).input_template
    found: dict[str, Any] = resolve({**template, **step.input_parameters}, run.scope(), task_id=task_id)
    # What resolves to nothing falls back to the template as it is written.
    filled = {key: template.get(key) if value is None else value for key, value in found.items()}
    return redirected(filled, run.branches)


def redirected(given: dict[str, Any], branches: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A task's input with the branch of its `workspace` replaced where the run works on another one."""
    workspace = given.get("workspace")
    if isinstance(workspace, list):
        return {**given, "workspace": [_on_other_branch(one, branches) for one in workspace]}
    if not isinstance(workspace, Mapping):
        return given
    return {**given, "workspace": _on_other_branch(workspace, branches)}


def _on_other_branch(workspace: Any, branches: Mapping[str, Mapping[str, str]]) -> Any:
    if not isinstance(workspace, Mapping):
        return workspace
    branch = branches.get(str(workspace.get("repository")), {}).get(str(workspace.get("branch")))
    return workspace if branch is None else {**workspace, "branch": branch}


def simple(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """A task to be polled, after the step's delay."""
    task.available = env.now + step.start_delay
    task.input = task_input(run, step, task.id)
    return ()


def switch(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Choose the case; its first step begins too."""
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


def fork(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Over at once; the first step of every branch begins, and the JOIN that follows."""
    task.input = resolve(step.input_parameters, run.scope())
    task.end("COMPLETED", env.now)
    join = run.definition.next_after(step.reference)
    return [*(branch[0] for branch in step.branches), *([join] if join is not None else [])]


def join(_run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Waits for the tasks it names."""
    task.input = {"joinOn": list(step.join_on)}
    return ()


def loop(run: Run, step: Step, task: Task, _env: Env) -> Sequence[Step]:
    """Its body begins when the loop is looked at."""
    task.input = task_input(run, step, task.id)
    return ()


def nothing(run: Run, step: Step, task: Task, env: Env) -> Sequence[Step]:
    """Over at once: a step that a JOIN can wait for."""
    task.input = resolve(step.input_parameters, run.scope())
    task.end("COMPLETED", env.now)
    return ()


def _evaluate(step: Step, values: Mapping[str, Any]) -> Any:
    if step.evaluator == "value-param":
        return values.get(step.expression)
    return run_script(step.expression, values)
