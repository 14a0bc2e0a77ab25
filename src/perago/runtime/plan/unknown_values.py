"""Finds the values of a workflow that are unknown while it is planned, because a step that would run makes them.

    "${one.output.workspace}"         known: the planner's own name for a commit stands for the one that does not exist yet
    "${one.output.result.rows}"       unknown if the step would run; known if it is skipped
    "${joined.output.one.result}"     as if it were read from the step itself
    a SWITCH on an unknown value      unknown are its case, and so every step in it and after it
    a loop with such a condition      unknown is whether it goes on, and so every later iteration and every step after it

Where this is in doubt, a value is unknown: a plan must not say *skip* where the run could run the step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from perago.orchestrator.base import TaskState, WorkflowState
from perago.workflow.model.definition import ITERATION_MARK, Step, WorkflowDefinition
from perago.workflow.model.expressions import Part, expressions_in, understood
from perago.workflow.model.step_types import JOIN, SIMPLE, SWITCH

_KNOWN_OUTPUTS = frozenset({"workspace", "origin", "view"})
_OUTPUT: tuple[Part, ...] = ("output",)


class UnknownValues:
    """The unknown values of one workflow so far.  Each has a *cause*: the step that would run."""

    def __init__(self, workflow: WorkflowDefinition, cause_in: Callable[[Any], str | None]) -> None:
        """Take the workflow, and a function that finds planned commits in resolved values."""
        self._workflow = workflow
        self._cause_in = cause_in
        self._results: dict[str, str] = {}
        self._earlier_results: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._control: dict[str, str] = {}
        self._iterations: dict[str, int] = {}
        self._switches: set[str] = set()

    def add_result(self, step: Step, cause: str) -> None:
        """Remember that the result of a step is unknown."""
        self._results[step.reference] = self._earlier_results[step.reference] = cause

    def remove_result(self, step: Step) -> None:
        """Remember that the result of a step is known: its last iteration is skipped."""
        self._results.pop(step.reference, None)

    def cause_of(self, step: Step, resolved: Mapping[str, Any]) -> str | None:
        """Return why the input of a step is unknown, or None if it is known, given as it was resolved.

        A `workspace` may name planned commits.
        """
        others = {name: value for name, value in resolved.items() if name != "workspace"}
        cause = self._cause_of(step.inputs) or self._cause_in(others)
        if cause is not None:
            self._inputs[step.reference] = cause
        return cause

    def cause_before(self, reference: str) -> str | None:
        """Return why it is unknown whether a step is reached, and with what, or None if that is known."""
        before = self._workflow.before(reference)
        return next((cause for control, cause in self._control.items() if control in before), None)

    @property
    def cause_of_flow(self) -> str | None:
        """The reason why the course of the workflow is unknown somewhere, or None if it is known everywhere."""
        return next(iter(self._control.values()), None)

    def observe(self, state: WorkflowState) -> None:
        """Look at what the orchestrator has decided last.  Call this after each completed task."""
        for task in state.tasks:
            step = self._workflow.steps[_step_reference(task)]
            if step.type == SWITCH and task.task_id not in self._switches:
                self._switches.add(task.task_id)
                self._decided(step, self._cause_of(step.inputs) or self._cause_in(dict(task.input)))
            elif step.shape == "loop":
                self._observe_loop(step, task)

    def _observe_loop(self, step: Step, task: TaskState) -> None:
        seen = self._iterations.get(task.task_id, 0)
        if seen and (task.iteration > seen or task.status != "IN_PROGRESS"):
            read = (
                cause
                for name, cause in self._earlier_results.items()
                if name in step.inside() and re.search(rf"\b{re.escape(name)}\b", step.loop_condition)
            )
            self._decided(step, self._cause_of(step.inputs) or next(read, None))
        self._iterations[task.task_id] = task.iteration

    def _decided(self, step: Step, cause: str | None) -> None:
        if cause is not None:
            self._control.setdefault(step.reference, cause)

    def _cause_of(self, value: Any) -> str | None:
        causes = (self._cause_of_expression(expression) for expression in expressions_in(value))
        return next((cause for cause in causes if cause is not None), None)

    def _cause_of_expression(self, expression: str) -> str | None:
        parts, _ = understood(expression)
        step = self._workflow.steps.get(str(parts[0])) if parts else None
        return None if step is None else self._cause_of_part(step, parts[1:], self._results)

    def _cause_of_part(self, step: Step, path: tuple[Part, ...], results: Mapping[str, str]) -> str | None:
        """Return why a part of a task is unknown, given its path, such as `output.result`."""
        if path[:1] == ("input",):
            return self._inputs.get(step.reference)
        if path and path[:1] != _OUTPUT:
            return None
        inner = path[1:]
        if step.type == JOIN:
            named = (str(inner[0]).split(ITERATION_MARK)[0],) if inner else step.join_on
            return self._first_cause(named, inner[1:], results)
        if step.shape == "switch" or (step.shape == "loop" and inner[:1] == ("iteration",)):
            return self._control.get(step.reference)
        if step.shape == "loop":
            named = (str(inner[1]),) if len(inner) > 1 else tuple(step.inside())
            return self._first_cause(named, inner[2:], self._earlier_results)
        if step.type != SIMPLE or (inner and inner[0] in _KNOWN_OUTPUTS):
            return None
        return results.get(step.reference)

    def _first_cause(
        self, names: tuple[str, ...], path: tuple[Part, ...], results: Mapping[str, str]
    ) -> str | None:
        steps = (self._workflow.steps[name] for name in names if name in self._workflow.steps)
        causes = (self._cause_of_part(step, (*_OUTPUT, *path), results) for step in steps)
        return next((cause for cause in causes if cause is not None), None)


def _step_reference(task: TaskState) -> str:
    """Return the reference of a task's step in the definition."""
    return task.reference.split(ITERATION_MARK)[0] if task.iteration else task.reference
