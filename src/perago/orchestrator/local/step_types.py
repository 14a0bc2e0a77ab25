"""The step types of a workflow: the one table of what the embedded orchestrator can run.

    type         its task      begins           with it begin                           looked at
    SIMPLE       a worker's    to be polled     -                                       never
    SWITCH       SWITCH        in progress      the first step of its case              in each round
    FORK_JOIN    FORK          over             every branch, the JOIN that follows     never
    JOIN         JOIN          in progress      -                                       between rounds
    DO_WHILE     DO_WHILE      in progress      - (a look begins its body)              in each round
    NOOP         NOOP          over             -                                       never

A row says how a type is read (`unsupported`, `diagnostics`: step_checks), how its turn begins (`begin`: step_begins) and
how it is carried on (`look`: system_tasks).  A new type is a row here, with its functions beside the others.
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
from perago.orchestrator.local.step_handlers import Looked


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


@dataclass(frozen=True, slots=True)
class StepType:
    """One row of the table."""

    name: str
    begin: Callable[[Run, Step, Task, Env], Sequence[Step]]
    """Gives the task its input and, where it is over at once, its end; returns the steps that begin with it."""
    task_type: str = ""
    """What Conductor calls the type of its tasks; empty where a worker does them, whose type is their name."""
    named_by_type: bool = True
    """Whether a system task goes by its type, and not by its step's name."""
    look: Callable[[Run, Task, Env], Looked] | None = None
    between_rounds: bool = False
    loops: bool = False
    one_path: bool = False
    """Whether only one of the lists in it is done, and once, so that what stands before a step in it is over."""
    goes_on: bool = False
    """Whether its task goes on itself when its workflow does, and is not made anew."""
    unsupported: Callable[[Mapping[str, Any]], Iterator[str]] = _nothing
    diagnostics: Callable[[WorkflowDefinition, Step], Iterator[str]] = _nothing

    def task_name(self, step: Step) -> str:
        """What the tasks of a step are called."""
        return self.task_type if self.task_type and self.named_by_type else step.name


_TABLE = (
    StepType(SIMPLE, step_handlers.simple),
    StepType(
        SWITCH,
        step_handlers.switch,
        task_type=SWITCH,
        one_path=True,
        look=step_handlers.evaluate_switch,
        unsupported=step_checks.unsupported_switch,
        diagnostics=step_checks.switch_diagnostics,
    ),
    StepType(FORK_JOIN, step_handlers.fork, task_type="FORK", diagnostics=step_checks.fork_diagnostics),
    StepType(
        JOIN,
        step_handlers.join,
        task_type=JOIN,
        look=step_handlers.evaluate_join,
        between_rounds=True,
        goes_on=True,
    ),
    StepType(
        DO_WHILE,
        step_handlers.loop,
        task_type=DO_WHILE,
        named_by_type=False,
        look=step_handlers.evaluate_loop,
        loops=True,
        goes_on=True,
        unsupported=step_checks.unsupported_loop,
        diagnostics=step_checks.loop_diagnostics,
    ),
    StepType(NOOP, step_handlers.nothing, task_type=NOOP, named_by_type=False),
)
STEP_TYPES: Mapping[str, StepType] = {row.name: row for row in _TABLE}
_SYSTEM: Mapping[str, StepType] = {row.task_type: row for row in _TABLE if row.task_type}


def is_system(task: Task) -> bool:
    """Whether the orchestrator does the task itself."""
    return task.type in _SYSTEM


def is_loop(task: Task) -> bool:
    """Whether the task stands for a loop, and not for one round of it."""
    return is_system(task) and _SYSTEM[task.type].loops


def goes_on(task: Task) -> bool:
    """Whether the task itself is taken up again when its workflow goes on."""
    return is_system(task) and _SYSTEM[task.type].goes_on


def looked_at(
    tasks: Sequence[Task], *, between_rounds: bool
) -> list[tuple[Task, Callable[[Run, Task, Env], Looked]]]:
    """The tasks that can be carried on, and are not over yet, with how."""
    found = []
    for task in tasks:
        row = _SYSTEM.get(task.type)
        if (
            row is not None
            and row.look is not None
            and row.between_rounds == between_rounds
            and not task.over
        ):
            found.append((task, row.look))
    return found
