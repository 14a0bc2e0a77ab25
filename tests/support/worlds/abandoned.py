"""An abandoned publication: it is on the branch, and the orchestrator never heard of it."""

from __future__ import annotations

import pytest

from perago.declare.task import TaskDefinition
from tests.support.faults.ports import before
from tests.support.worlds.world import World


def abandon(world: World, definition: TaskDefinition) -> str:
    """An attempt whose worker dies between publishing and completing; returns the commit it leaves at the head."""

    def die() -> None:
        raise RuntimeError("the worker dies here")

    orchestrator = before(world.orchestrator, "complete", die)
    with pytest.raises(RuntimeError, match="dies here"):
        world.execute(definition, world.poll(definition), orchestrator=orchestrator)
    return world.head().id
