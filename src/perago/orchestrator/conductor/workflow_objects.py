"""Builds workflows with the official client's classes, and converts them to JSON.

Nothing here talks to a server, and no other Perago module imports the client.  The client's workflow needs an executor
with a connection only to register and start itself.  Perago does both without the client, so the executor is None.

For a fork that is written as a list, and for a workflow inside a workflow, the client generates a name with a random part
that is new in every process.  In the JSON, numbers replace these parts, so that the same source always produces the same
definition.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from conductor.client.workflow.conductor_workflow import ConductorWorkflow as ConductorWorkflow
from conductor.client.workflow.task.join_task import JoinTask
from conductor.client.workflow.task.simple_task import SimpleTask
from conductor.client.workflow.task.task import TaskInterface, get_task_interface_list_as_workflow_task_list
from conductor.client.workflow.task.task_type import TaskType

from perago.errors import TaskDefinitionError

_RANDOM = re.compile(r".*_([2-9A-HJ-NP-Za-km-z]{22})")
"""Matches names that end in the client's random part, recognized by its alphabet and length."""
_RANDOMLY_NAMED = ("FORK_JOIN", "SUB_WORKFLOW")


class TaskStep(SimpleTask):  # type: ignore[misc]  # the client has no types
    """A step that a worker runs, as one of the official client's task objects."""

    def __init__(self, task: str, reference: str, inputs: Mapping[str, Any]) -> None:
        super().__init__(task_def_name=task, task_reference_name=reference)
        self.input_parameters.update(inputs)


class Fork(TaskInterface):  # type: ignore[misc]  # the client has no types
    """A FORK_JOIN and its JOIN.  Each arm ends in a NOOP, and the JOIN waits for those NOOPs (see decision 0022)."""

    def __init__(self, reference: str, arms: Sequence[Sequence[TaskInterface]]) -> None:
        super().__init__(task_reference_name=reference, task_type=TaskType.FORK_JOIN)
        self._arms = arms

    def to_workflow_task(self) -> list[Any]:
        """Return the fork and its join as the client's objects."""
        fork = super().to_workflow_task()
        ends = [_Noop(f"{arm[-1].task_reference_name}_done") for arm in self._arms]
        fork.fork_tasks = [
            get_task_interface_list_as_workflow_task_list(*arm, end)
            for arm, end in zip(self._arms, ends, strict=True)
        ]
        waits_for = [end.task_reference_name for end in ends]
        join = JoinTask(f"{self.task_reference_name}_join", join_on=waits_for)
        return [fork, join.to_workflow_task()]


class _Noop(TaskInterface):  # type: ignore[misc]
    """A NOOP step, for which the client has no class."""

    def __init__(self, reference: str) -> None:
        super().__init__(task_reference_name=reference, task_type=TaskType.SIMPLE)

    def to_workflow_task(self) -> Any:
        step = super().to_workflow_task()
        step.type = "NOOP"
        return step


def conductor_workflow(
    name: str, steps: Sequence[TaskInterface], *, version: int, description: str | None
) -> ConductorWorkflow:
    """Return a workflow of these steps, built with the official client's class.  No server is needed."""
    made = ConductorWorkflow(executor=None, name=name, version=version, description=description)
    # The client's own default, 60 s, would raise an alert for every longer workflow; JSON without the field has none.
    made.timeout_seconds(0)
    for step in steps:
        made.add(step)
    return made


def is_step(found: object) -> bool:
    """Return whether an object is one of the official client's step objects."""
    return isinstance(found, TaskInterface)


def is_workflow(found: object) -> bool:
    """Return whether an object is one of the official client's workflow objects."""
    return isinstance(found, ConductorWorkflow)


def definition_of(workflow: Any, source: str) -> dict[str, Any]:
    """Return the workflow's JSON, as the client would send it; `source` names it in errors.

    Raises `TaskDefinitionError` if the client cannot build it, or if it contains a value that has no JSON form.
    """
    try:
        made = _plain(workflow.to_workflow_def())
    except Exception as error:
        # The client builds the definition only now, from the author's objects, so any error is possible.
        raise TaskDefinitionError(
            f"{source}: the official client cannot make a definition of it: {type(error).__name__}: {error}; "
            "its to_workflow_def(), called in Python, shows where"
        ) from error
    try:
        text = json.dumps(made)
    except (TypeError, ValueError) as error:
        raise TaskDefinitionError(
            f"{source}: a step or an output holds something that has no JSON form ({error}); give it text, numbers, "
            "lists and dictionaries"
        ) from None
    for number, part in enumerate(dict.fromkeys(_random_parts(made)), start=1):
        text = text.replace(part, str(number))
    definition: dict[str, Any] = json.loads(text)
    return definition


def _random_parts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        found = _RANDOM.fullmatch(str(value.get("taskReferenceName")))
        if found is not None and value.get("type") in _RANDOMLY_NAMED:
            yield found[1]
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from _random_parts(one)


def _plain(value: Any) -> Any:
    """Convert the client's models to JSON values, leaving out unset fields."""
    if isinstance(value, str) and not isinstance(value, Enum):
        return str(value)
    if hasattr(value, "swagger_types"):
        fields = {name: getattr(value, name) for name in value.swagger_types}
        return {value.attribute_map[name]: _plain(one) for name, one in fields.items() if one is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
