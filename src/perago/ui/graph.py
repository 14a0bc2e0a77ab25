"""A workflow as a graph: the steps in its definition, each with its current state.

    shape     drawn as
    step      a box
    fork      lanes side by side, all of which run
    switch    lanes side by side, one of which runs
    loop      a frame around the repeated steps

Retries and iterations are folded into their step, which shows the status of its newest attempt.  A NOOP, which only ends
an arm so that the JOIN can wait for it, is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.runs.inspect import OPEN, seconds_of
from perago.runtime.runs.run import first_line
from perago.workflow.model.definition import ITERATION_MARK, Block, Step, read_workflow
from perago.workflow.model.step_types import NOOP, Shape

_DEEPEST = 40


@dataclass(frozen=True, slots=True)
class StepState:
    """The current state of a workflow step, as shown in the graph."""

    status: str = ""
    """The newest attempt's status. Empty if the step has not been scheduled yet."""
    attempts: int = 0
    iterations: int = 0
    seconds: float | None = None
    """Duration of the newest attempt, if it has ended."""
    since: float | None = None
    """Start of the newest attempt, if it is still running."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """A sequence of steps inside another step.  In a switch, the label is the name of the case."""

    label: str
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Node:
    """A step in the graph, with the lanes that it contains."""

    reference: str
    name: str
    type: str
    shape: Shape
    standing: StepState
    lanes: Sequence[Lane] = field(default_factory=tuple)


def graph_of(state: WorkflowState) -> list[Node]:
    """Return a workflow's graph as a list of nodes.  Steps that ran but are not in the definition come last."""
    tasks: dict[str, list[TaskState]] = {}
    for task in state.tasks:
        if task.task_type == NOOP:
            continue
        tasks.setdefault(step_of(task), []).append(task)
    # A definition written by another tool may contain anything.
    definition = read_workflow(state.definition, deepest=_DEEPEST)
    nodes = list(_nodes(definition.top.steps, tasks))
    named = set(_references(nodes))
    rest = [
        Node(reference, found[-1].task_name, found[-1].task_type, "step", state_of_step(found))
        for reference, found in tasks.items()
        if reference not in named
    ]
    return [*nodes, *rest]


def step_of(task: TaskState) -> str:
    """Return the reference of the task's step, without the iteration suffix that a loop appends."""
    return (
        task.reference.removesuffix(f"{ITERATION_MARK}{task.iteration}") if task.iteration else task.reference
    )


def state_of_step(tasks: Sequence[TaskState]) -> StepState:
    """Return the state of a step, given its tasks, oldest first."""
    if not tasks:
        return StepState()
    newest = max(tasks, key=lambda task: task.seq)
    open_now = newest.status in OPEN
    return StepState(
        status=newest.status,
        attempts=sum(task.iteration == newest.iteration for task in tasks),
        iterations=len({task.iteration for task in tasks if task.iteration}),
        seconds=seconds_of(newest),
        since=newest.started if open_now else None,
        why="" if open_now or newest.status == "COMPLETED" else first_line(newest.reason),
    )


def _nodes(steps: Sequence[Step], tasks: Mapping[str, list[TaskState]]) -> Iterator[Node]:
    for step in steps:
        if step.type != NOOP:
            lanes = tuple(Lane(_label(block), tuple(_nodes(block.steps, tasks))) for block in step.blocks)
            standing = state_of_step(tasks.get(step.reference, []))
            yield Node(step.reference, step.name, step.type, step.shape, standing, lanes)


def _label(block: Block) -> str:
    return {"case": block.name, "default": "otherwise"}.get(block.kind, "")


def _references(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        yield node.reference
        for lane in node.lanes:
            yield from _references(lane.nodes)
