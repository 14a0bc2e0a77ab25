"""A workflow as a graph of its steps: its definition, with the present state of each step.

    shape     drawn as
    step      a box
    fork      lanes side by side, which all run
    switch    lanes side by side, of which one runs
    loop      a frame around the repeated steps

Retries and iterations are folded into their step, which shows the status of its newest attempt.  A NOOP, which ends a
branch for its JOIN, is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.runs.inspect import OPEN, seconds_of
from perago.runtime.runs.run import first_line

Shape = Literal["step", "fork", "switch", "loop"]
_DEEPEST = 40
_NOT_DRAWN = "NOOP"
_SHAPES: Mapping[str, Shape] = {
    "FORK_JOIN": "fork",
    "FORK_JOIN_DYNAMIC": "fork",
    "SWITCH": "switch",
    "DECISION": "switch",
    "DO_WHILE": "loop",
}


@dataclass(frozen=True, slots=True)
class StepState:
    """The present state of a step."""

    status: str = ""
    """Empty if the step was not scheduled yet."""
    attempts: int = 0
    iterations: int = 0
    seconds: float | None = None
    """Duration of its newest attempt, if that is over."""
    since: float | None = None
    """Start of its newest attempt, if that is running."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """A sequence of steps; a lane of a switch has the case as its label."""

    label: str
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class Node:
    """A step, with the lanes inside it."""

    reference: str
    name: str
    type: str
    shape: Shape
    standing: StepState
    lanes: Sequence[Lane] = field(default_factory=tuple)


def graph_of(state: WorkflowState) -> list[Node]:
    """Return the graph. Steps that ran but are not in the definition come at its end."""
    tasks: dict[str, list[TaskState]] = {}
    for task in state.tasks:
        if task.task_type == _NOT_DRAWN:
            continue
        tasks.setdefault(step_of(task), []).append(task)
    nodes = list(_nodes(state.definition.get("tasks"), tasks, 0))
    named = set(_references(nodes))
    rest = [
        Node(reference, found[-1].task_name, found[-1].task_type, "step", state_of_step(found))
        for reference, found in tasks.items()
        if reference not in named
    ]
    return [*nodes, *rest]


def step_of(task: TaskState) -> str:
    """Return the step's reference, without the iteration suffix that a loop appends."""
    return task.reference.removesuffix(f"__{task.iteration}") if task.iteration else task.reference


def state_of_step(tasks: Sequence[TaskState]) -> StepState:
    """Return the state of a step from its tasks, oldest first."""
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


def _nodes(block: Any, tasks: Mapping[str, list[TaskState]], depth: int) -> Iterator[Node]:
    """Yield the nodes of a list of steps. A definition written by a foreign tool may hold anything."""
    for step in block if isinstance(block, list) and depth < _DEEPEST else ():
        if isinstance(step, Mapping):
            reference = str(step.get("taskReferenceName", ""))
            kind = str(step.get("type") or "SIMPLE")
            if kind == _NOT_DRAWN:
                continue
            lanes = tuple(_lanes(step, tasks, depth + 1))
            standing = state_of_step(tasks.get(reference, []))
            yield Node(reference, str(step.get("name", "")), kind, _SHAPES.get(kind, "step"), standing, lanes)


def _lanes(step: Mapping[str, Any], tasks: Mapping[str, list[TaskState]], depth: int) -> Iterator[Lane]:
    for branch in step.get("forkTasks") or ():
        yield Lane("", tuple(_nodes(branch, tasks, depth)))
    for case, block in (step.get("decisionCases") or {}).items():
        yield Lane(str(case), tuple(_nodes(block, tasks, depth)))
    if step.get("defaultCase"):
        yield Lane("otherwise", tuple(_nodes(step["defaultCase"], tasks, depth)))
    if step.get("loopOver"):
        yield Lane("", tuple(_nodes(step["loopOver"], tasks, depth)))


def _references(nodes: Sequence[Node]) -> Iterator[str]:
    for node in nodes:
        yield node.reference
        for lane in node.lanes:
            yield from _references(lane.nodes)
