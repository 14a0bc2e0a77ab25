"""What the parts of the check share: the tree of steps, the tasks they run, and what is known of the workflow's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.declare.task import TaskDefinition
from perago.workflow.check.shapes import Shape, TaskShapes, task_shapes
from perago.workflow.check.step_order import Ran, has_run_in_the_end
from perago.workflow.check.steps import SIMPLE, Flow, Step
from perago.workflow.model.expressions import understood


@dataclass(frozen=True, slots=True)
class Checking:
    """One workflow and its tasks; `given` is its input, with its template, where it is known."""

    flow: Flow
    tasks: Mapping[str, TaskDefinition]
    given: Mapping[str, Any] | None
    named_inputs: tuple[str, ...] = ()
    starts: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    """By reference, what `starts` has found out."""
    _shapes: dict[str, TaskShapes] = field(default_factory=dict)

    def task_of(self, step: Step) -> TaskDefinition | None:
        """The task that a step runs, if it is one of the given."""
        return self.tasks.get(step.task) if step.type == SIMPLE else None

    def output_of(self, reference: str) -> Shape | None:
        """What a step's output looks like; None if that is unknown."""
        task = self.task_of(self.flow.steps[reference])
        return None if task is None else self.shapes(task).output

    def shapes(self, task: TaskDefinition) -> TaskShapes:
        """What a task's params and output look like; made once, since schemas are slow to make."""
        if task.name not in self._shapes:
            self._shapes[task.name] = task_shapes(task)
        return self._shapes[task.name]

    def shape_of(self, expression: str) -> Shape | None:
        """What an expression that reads a step's output gives; None if that is unknown."""
        parts, end = understood(expression)
        if end < len(expression) or parts[1:2] != ("output",) or parts[0] not in self.flow.steps:
            return None
        shape = self.output_of(str(parts[0]))
        for part in parts[2:]:
            shape = None if shape is None else shape.at(part)
        return shape

    def always_runs(self, step: Step) -> bool:
        """Whether a workflow that comes to its end has run the step."""
        return has_run_in_the_end(self.flow, step.reference).ran is Ran.YES
