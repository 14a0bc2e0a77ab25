"""The table of Conductor's step types: who runs a step, how the steps inside it run, and which tasks it may use.

    done_by          who runs tasks of this type
    worker           a worker that polls for them; each task is an attempt
    orchestrator     the orchestrator itself, at once or by waiting for other steps
    elsewhere        another workflow, another service, a person or the clock

    shape            the steps inside
    step             none
    fork             all run, in parallel
    switch           only those in one case run
    loop             they run once or more

A type that is not in the table may use any task, and may add steps that the workflow's definition does not name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SIMPLE = "SIMPLE"
SWITCH = "SWITCH"
FORK_JOIN = "FORK_JOIN"
JOIN = "JOIN"
EXCLUSIVE_JOIN = "EXCLUSIVE_JOIN"
DO_WHILE = "DO_WHILE"
NOOP = "NOOP"
TERMINATE = "TERMINATE"
JOINS = (JOIN, EXCLUSIVE_JOIN)

Shape = Literal["step", "fork", "switch", "loop"]


@dataclass(frozen=True, slots=True)
class StepType:
    """The properties of one step type: one row of the table."""

    name: str
    done_by: Literal["worker", "orchestrator", "elsewhere"] = "orchestrator"
    shape: Shape = "step"
    state_name: str = ""
    """Conductor's name for the type in task states, if it differs from `name`."""
    any_task: bool = False
    """True if a step of this type may run a task that the definition does not name."""
    adds_steps: bool = False
    """True if a step of this type adds steps that the definition does not name."""

    @property
    def task_type(self) -> str:
        """Conductor's name for the type in task states."""
        return self.state_name or self.name


_TABLE = (
    StepType(SIMPLE, "worker"),
    StepType("DYNAMIC", "worker", any_task=True),
    StepType(FORK_JOIN, shape="fork", state_name="FORK"),
    StepType("FORK_JOIN_DYNAMIC", shape="fork", state_name="FORK", any_task=True, adds_steps=True),
    StepType(JOIN),
    StepType(EXCLUSIVE_JOIN),
    StepType(SWITCH, shape="switch"),
    StepType("DECISION", shape="switch"),
    StepType(DO_WHILE, shape="loop"),
    StepType(TERMINATE),
    StepType(NOOP),
    StepType("SET_VARIABLE"),
    StepType("INLINE"),
    StepType("LAMBDA"),
    StepType("JSON_JQ_TRANSFORM"),
    StepType("WAIT", "elsewhere"),
    StepType("HUMAN", "elsewhere"),
    StepType("HTTP", "elsewhere"),
    StepType("EVENT", "elsewhere"),
    StepType("SUB_WORKFLOW", "elsewhere", any_task=True),
    StepType("START_WORKFLOW", "elsewhere", any_task=True),
)
STEP_TYPES: Mapping[str, StepType] = {row.name: row for row in _TABLE}

NAMED = frozenset(row.name for row in _TABLE if not row.any_task)
"""Step types that can use only tasks that the definition names."""
BRING_NO_STEPS = frozenset(row.name for row in _TABLE if not row.adds_steps)
"""Step types that add no steps to the workflow beyond those that the definition names."""
OWN = frozenset(
    kind
    for row in _TABLE
    if row.done_by == "orchestrator" and not row.adds_steps
    for kind in (row.name, row.task_type)
)
"""Step types that the orchestrator runs itself, under their names in workflows and in Conductor's task states."""


def shape_of(kind: str) -> Shape:
    """Return the shape of a step type; an unknown type is a plain step."""
    row = STEP_TYPES.get(kind)
    return "step" if row is None else row.shape
