"""Steps side by side: a fork whose arms can be retried.

The rule: the JOIN never waits for a step that may fail and come again.  Conductor looks at it up to twenty times a second,
and fails the whole workflow if it finds a failure there before the retry is scheduled (decision 0022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perago.declare.mistakes import calling_place, shortened
from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import Fork, is_step


def fork(name: str, *arms: Sequence[Any]) -> Fork:
    """A fork, and the join behind it: `workflow >> fork("both", [clean, count], [audit])`.

    Args:
        name: The fork's own name, unique in the workflow; its join is called `<name>_join`.
        arms: Lists of steps; the steps of a list run one after the other, the lists side by side.
    """
    if not isinstance(name, str) or not name.strip():
        raise TaskDefinitionError(
            f"{calling_place()}: a fork needs a name of its own in the workflow, and got {shortened(name)}"
        )
    for arm in arms or ((),):
        if not isinstance(arm, list | tuple) or not arm or not all(map(is_step, arm)):
            raise TaskDefinitionError(
                f"{calling_place()}: fork {name!r} takes one list of steps for each arm, and got {shortened(arm)}: "
                f'fork("{name}", [first], [second])'
            )
    return Fork(name, arms)
