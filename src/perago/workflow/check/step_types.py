"""The table of Conductor's step types, with the properties that the check and the views of a workflow need.

    done_by          who runs the tasks of the type
    worker           a worker that polls for them: they are attempts
    orchestrator     the orchestrator itself, at once or by waiting for other steps
    elsewhere        another workflow, another service, a person or the clock

A type that is not in the table may add steps to the workflow that its definition does not name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StepType:
    """One row of the table."""

    name: str
    done_by: Literal["worker", "orchestrator", "elsewhere"] = "orchestrator"
    task_type: str = ""
    """Conductor's name for the type in task states, if it is different."""
    any_task: bool = False
    """True if it may run a task that the definition does not name."""


_TABLE = (
    StepType("SIMPLE", "worker"),
    StepType("DYNAMIC", "worker", any_task=True),
    StepType("FORK_JOIN", task_type="FORK"),
    StepType("JOIN"),
    StepType("EXCLUSIVE_JOIN"),
    StepType("SWITCH"),
    StepType("DECISION"),
    StepType("DO_WHILE"),
    StepType("TERMINATE"),
    StepType("NOOP"),
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

NAMED = frozenset(row.name for row in _TABLE if not row.any_task)
"""Types whose steps use only tasks that the definition names."""
BRING_NO_STEPS = frozenset(row.name for row in _TABLE)
"""Types that add no steps to the workflow beyond those that the definition names."""
OWN = frozenset(
    kind for row in _TABLE if row.done_by == "orchestrator" for kind in (row.name, row.task_type or row.name)
)
"""Types that the orchestrator runs itself, by their names in workflows and in Conductor's task states."""
