"""Checks the arguments of a trial (tasks, params, workflow, faults) before anything is created.

Every error is one line that says what was passed and what to pass instead.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pydantic import BaseModel

from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition, tasks_declared_in
from perago.errors import TaskDefinitionError, TrialError
from perago.protocol.suggestions import did_you_mean, listed
from perago.testing.faults import Faults, HeadMove, checked_faults
from perago.workflow.check.check import check_workflow
from perago.workflow.model.definition import ITERATION_MARK, read_workflow

Task = Callable[..., Any] | ModuleType | str
"""A decorated function, a module that declares tasks, or the path of a file that does."""


class PythonWorkflow(Protocol):
    """A workflow built in Python with the official Conductor client's classes."""

    def to_workflow_def(self) -> Any:
        """Return the workflow's definition."""


Workflow = Mapping[str, Any] | str | os.PathLike[str] | PythonWorkflow
"""A workflow's definition, the path of its JSON file, or a workflow in Python, as an object or as `module:name`."""


def task_of(function: object) -> TaskDefinition:
    """Return the definition of a task, given its function. Raises `TaskDefinitionError` if that is not a task."""
    task = getattr(function, "__perago_task__", None)
    if not isinstance(task, TaskDefinition):
        raise TaskDefinitionError(f"{function!r} is not a task: decorate it with @perago.task")
    return task


def tasks_of(given: Task | Iterable[Task]) -> list[TaskDefinition]:
    """Return the tasks in functions, modules and files. Raises `TrialError` if two tasks share a name."""
    several = [given] if isinstance(given, str | ModuleType) or callable(given) else list(given)
    found: dict[str, TaskDefinition] = {}
    for one in several:
        for task in _tasks_of_one(one):
            if found.setdefault(task.name, task) is not task:
                raise TrialError(
                    f"two of the tasks are called {task.name!r}: {found[task.name].place} and {task.place}"
                )
    if not found:
        raise TrialError("tasks is empty: give the functions or the modules that the workflow uses")
    return list(found.values())


def params_of(task: TaskDefinition, given: object) -> Mapping[str, Any]:
    """Return the params as a workflow would send them: a mapping unchanged, a model converted to JSON values."""
    if given is None:
        return {}
    if isinstance(given, task.params_model):
        # Convert through JSON, so that a trial sends nothing that Conductor could not send.
        return dict(json.loads(given.model_dump_json(by_alias=True, round_trip=True)))
    if isinstance(given, Mapping):
        return given
    what = type(given).__name__
    kind = f"a {what}" if isinstance(given, BaseModel) else f"of type {what}"
    raise TrialError(
        f"params is {kind}; task {task.name!r} takes a {task.params_model.__name__}, or a dict of its fields"
    )


def retries_of(task: TaskDefinition, retries: int) -> int:
    """Validate and return `retries`. Raises `TrialError` if it is invalid, or if the task allows fewer retries."""
    allowed = task.controls.retry.count
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise TrialError(
            f"retries={retries!r}: give the number of retries after the first attempt, 0 or more"
        )
    if retries > allowed:
        raise TrialError(
            f"retries={retries}, but task {task.name!r} allows {allowed}: Conductor would not retry it more often; "
            f"give retries={allowed}, or declare RetryPolicy(count={retries})"
        )
    return retries


def faults_of(task: TaskDefinition, faults: object, *, what: str = "faults") -> Faults:
    """Validate and return the faults for a task's attempts."""
    checked = checked_faults({} if faults is None else faults, what=what)
    for step, fault in checked.items():
        if isinstance(fault, HeadMove) and task.workspace is None:
            raise TrialError(f"{what}[{step!r}]: task {task.name!r} has no workspace, so no head can move")
    return checked


def workflow_of(given: Workflow) -> tuple[dict[str, Any], str]:
    """Return a workflow's definition, and a name by which messages can refer to it."""
    if isinstance(given, Mapping):
        name = given.get("name")
        return dict(given), f"workflow {name!r}" if name else "the workflow"
    if not isinstance(given, str | os.PathLike):
        return _definition_of(given)
    if isinstance(given, str) and ":" in given and not given.endswith(".json"):
        # Imported late, because it imports the official client.
        from perago.workflow.loading import load_definition

        return load_definition(given), given
    file = Path(given)
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrialError(f"the workflow file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TrialError(f"the workflow file {file} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise TrialError(f"the workflow file {file} must hold one JSON object, {{…}}")
    return read, str(file)


def _definition_of(given: PythonWorkflow) -> tuple[dict[str, Any], str]:
    if not hasattr(given, "to_workflow_def"):
        raise TrialError(
            f"workflow is {type(given).__name__}; give a dict, the path of a JSON file, or a workflow in Python"
        )
    from perago.orchestrator.conductor.workflow_objects import definition_of

    definition = definition_of(given, "the workflow")
    return definition, f"workflow {definition.get('name')!r}"


def check_workflow_errors(
    definition: Mapping[str, Any], tasks: Sequence[TaskDefinition], *, file: str, given: Mapping[str, Any]
) -> None:
    """Raise `TrialError` if `perago check` would reject the workflow."""
    if not isinstance(definition.get("name"), str):
        raise TrialError(f'{file} has no name; add "name": "…"')
    by_name = {task.name: task for task in tasks}
    diagnostics = check_workflow(definition, by_name, file=file, given=given)
    errors = [str(diagnostic) for diagnostic in diagnostics if diagnostic.level == "error"]
    if errors:
        raise TrialError("\n".join(errors))


def workflow_faults(
    definition: Mapping[str, Any], tasks: Mapping[str, TaskDefinition], faults: object
) -> dict[str, Faults]:
    """Validate and return the faults for each step's attempts, keyed by the step's reference name."""
    if faults is None:
        return {}
    if not isinstance(faults, Mapping):
        raise TrialError(
            f'faults is {type(faults).__name__}; give a dict such as {{"clean": {{"publish": crash()}}}}'
        )
    steps = {
        reference: tasks[step.name]
        for reference, step in read_workflow(definition, named_only=True).steps.items()
        if step.name in tasks
    }
    checked: dict[str, Faults] = {}
    for reference, given in faults.items():
        # Loop iterations have the names that Conductor gives them, such as clean__2.
        task = steps.get(reference) or steps.get(str(reference).rpartition(ITERATION_MARK)[0])
        if task is None:
            close = did_you_mean(str(reference), steps, otherwise=f"; the steps are {listed(steps)}")
            raise TrialError(f"faults[{reference!r}]: the workflow has no such step that runs a task{close}")
        checked[reference] = faults_of(task, given, what=f"faults[{reference!r}]")
    return checked


def forced_steps(definition: Mapping[str, Any], force: Iterable[str]) -> frozenset[str]:
    """Validate and return the steps to force. Raises `TrialError` if the workflow does not have one of them."""
    if isinstance(force, str):
        raise TrialError(f"force={force!r}: give a list of steps, such as [{force!r}]")
    forced, steps = frozenset(force), read_workflow(definition, named_only=True).steps
    for name in sorted(forced):
        if name not in steps and str(name).rpartition(ITERATION_MARK)[0] not in steps:
            close = did_you_mean(str(name), steps, otherwise=f"; the steps are {listed(steps)}")
            raise TrialError(f"force: the workflow has no step {name!r}{close}")
    return forced


def _tasks_of_one(given: object) -> list[TaskDefinition]:
    if isinstance(given, TaskDefinition):
        return [given]
    if isinstance(given, str):
        return load_tasks([given])
    if isinstance(given, ModuleType):
        found = tasks_declared_in(given.__name__)
        if not found:
            raise TrialError(f"module {given.__name__!r} declares no task; give the one that does")
        return found
    return [task_of(given)]
