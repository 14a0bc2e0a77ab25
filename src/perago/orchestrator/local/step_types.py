"""The table of step types that the embedded orchestrator can run.

    type         its task      starts as        starts with it                          evaluated
    SIMPLE       a worker's    to be polled     -                                       never
    SWITCH       SWITCH        in progress      the first step of its case              in each round
    FORK_JOIN    FORK          over             every branch, the JOIN that follows     never
    JOIN         JOIN          in progress      -                                       between rounds
    DO_WHILE     DO_WHILE      in progress      - (evaluation starts its body)          in each round
    NOOP         NOOP          over             -                                       never

A row has the checks of a type (`unsupported`, `diagnostics`: step_checks) and its behaviour (`schedule`, `evaluate`:
step_handlers).  A new type is a row here, with its functions beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perago.orchestrator.local import step_checks, step_handlers
from perago.orchestrator.local.definition import (
    DO_WHILE,
    FORK_JOIN,
    JOIN,
    NOOP,
    SIMPLE,
    SWITCH,
    Step,
    WorkflowDefinition,
)
from perago.orchestrator.local.state import Env, Run, Task
from perago.orchestrator.local.step_handlers import Evaluation


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, slots=True)
class StepType:
    """One row of the table."""

    name: str
    schedule: Callable[[Run, Step, Task, Env], Sequence[Step]]
    """Sets the task's input, ends it if it is over at once, and returns the steps that start with it."""
    task_type: str = ""
    """Conductor's name for the type of its tasks; empty for a worker's tasks, whose type is their name."""
    named_by_type: bool = True
    """True if a system task is named after its type, not after its step."""
    evaluate: Callable[[Run, Task, Env], Evaluation] | None = None
    between_rounds: bool = False
    loops: bool = False
    one_path: bool = False
    """True if only one of its lists runs, and once, so that everything before a step inside it is over."""
    reopens: bool = False
    """True if resuming the workflow reopens its task instead of creating a new one."""
    unsupported: Callable[[Mapping[str, Any]], Iterator[str]] = _nothing
    diagnostics: Callable[[WorkflowDefinition, Step], Iterator[str]] = _nothing

    def task_name(self, step: Step) -> str:
        """Return the name of a step's tasks."""
        return self.task_type if self.task_type and self.named_by_type else step.name


_TABLE = (
    StepType(SIMPLE, step_handlers.schedule_simple),
    StepType(
        SWITCH,
        step_handlers.schedule_switch,
        task_type=SWITCH,
        one_path=True,
        evaluate=step_handlers.evaluate_switch,
        unsupported=step_checks.unsupported_switch,
        diagnostics=step_checks.switch_diagnostics,
    ),
    StepType(
        FORK_JOIN, step_handlers.schedule_fork, task_type="FORK", diagnostics=step_checks.fork_diagnostics
    ),
    StepType(
        JOIN,
        step_handlers.schedule_join,
        task_type=JOIN,
        evaluate=step_handlers.evaluate_join,
        between_rounds=True,
        reopens=True,
    ),
    StepType(
        DO_WHILE,
        step_handlers.schedule_loop,
        task_type=DO_WHILE,
        named_by_type=False,
        evaluate=step_handlers.evaluate_loop,
        loops=True,
        reopens=True,
        unsupported=step_checks.unsupported_loop,
        diagnostics=step_checks.loop_diagnostics,
    ),
    StepType(NOOP, step_handlers.schedule_noop, task_type=NOOP, named_by_type=False),
)
STEP_TYPES: Mapping[str, StepType] = {row.name: row for row in _TABLE}
_SYSTEM: Mapping[str, StepType] = {row.task_type: row for row in _TABLE if row.task_type}


def is_system(task: Task) -> bool:
    """Return whether the orchestrator runs the task itself."""
    return task.type in _SYSTEM


def is_loop(task: Task) -> bool:
    """Return whether the task is a whole loop, not one iteration of it."""
    return is_system(task) and _SYSTEM[task.type].loops


def reopens(task: Task) -> bool:
    """Return whether resuming the workflow reopens the task instead of creating a new one."""
    return is_system(task) and _SYSTEM[task.type].reopens


def evaluated_tasks(
    tasks: Sequence[Task], *, between_rounds: bool
) -> list[tuple[Task, Callable[[Run, Task, Env], Evaluation]]]:
    """Return the unfinished tasks to evaluate now, each with its function."""
    found = []
    for task in tasks:
        row = _SYSTEM.get(task.type)
        if (
            row is not None
            and row.evaluate is not None
            and row.between_rounds == between_rounds
            and not task.over
        ):
            found.append((task, row.evaluate))
    return found
