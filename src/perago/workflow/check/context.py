"""The context shared by all parts of the check: a workflow with its tasks and its known input, and the findings about it.

A finding is one line.  It is an error if it certainly applies on every path, and a warning otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.workflow.check.schema import Shape, TaskShapes, task_shapes
from perago.workflow.check.step_order import Ran, has_run_in_the_end
from perago.workflow.model.definition import Step, WorkflowDefinition
from perago.workflow.model.expressions import understood
from perago.workflow.model.step_types import SIMPLE

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a possible error (`warning`).  `step` is None if the finding concerns the whole workflow."""

    level: Level
    step: str | None
    message: str


@dataclass(frozen=True, slots=True)
class WorkflowDiagnostic(Finding):
    """A finding, with the file that it is about."""

    file: str

    def __str__(self) -> str:
        return f"{self.message} ({self.file})" if self.file else self.message


def error(step: str | None, message: str) -> Finding:
    """Return a finding about something that is wrong on every path."""
    return Finding("error", step, message)


def warning(step: str | None, message: str) -> Finding:
    """Return a finding about something that is wrong on some paths."""
    return Finding("warning", step, message)


@dataclass(frozen=True, slots=True)
class StepWorkspace:
    """The workspace of a step: its task's spec, filled if the params are known, and why they cannot fill it."""

    spec: WorkspaceSpec
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Checking:
    """The workflow to check, and its tasks.

    `given` is the workflow's input merged with its input template, or None if unknown.
    """

    workflow: WorkflowDefinition
    tasks: Mapping[str, TaskDefinition]
    given: Mapping[str, Any] | None
    named_inputs: tuple[str, ...] = ()
    starts: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """The branch and version that each step starts from: a cache for `start_of`, keyed by step reference."""
    workspaces: dict[str, StepWorkspace] = field(default_factory=dict)
    """The workspace of each step: a cache for `workspace_of`, keyed by step reference."""
    _shapes: dict[str, TaskShapes] = field(default_factory=dict)

    def task_of(self, step: Step) -> TaskDefinition | None:
        """Return the task that a step runs; None if it is not one of `tasks`."""
        return self.tasks.get(step.name) if step.type == SIMPLE else None

    def output_of(self, reference: str) -> Shape | None:
        """Return the shape of a step's output; None if unknown."""
        task = self.task_of(self.workflow.steps[reference])
        return None if task is None else self.shapes(task).output

    def shapes(self, task: TaskDefinition) -> TaskShapes:
        """Return the shapes of a task's params and output.  They are cached, because schemas are slow to build."""
        if task.name not in self._shapes:
            self._shapes[task.name] = task_shapes(task)
        return self._shapes[task.name]

    def shape_of(self, expression: str) -> Shape | None:
        """Return the shape of an expression that reads a step's output; None if unknown."""
        parts, end = understood(expression)
        if end < len(expression) or parts[1:2] != ("output",) or parts[0] not in self.workflow.steps:
            return None
        shape = self.output_of(str(parts[0]))
        for part in parts[2:]:
            shape = None if shape is None else shape.at(part)
        return shape

    def always_runs(self, step: Step) -> bool:
        """Return whether the step is certain to have run when the workflow reaches its end."""
        return has_run_in_the_end(self.workflow, step.reference).ran is Ran.YES
