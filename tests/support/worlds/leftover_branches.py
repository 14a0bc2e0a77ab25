"""Branches that attempts left behind, and the verdicts of a sweep on them."""

from __future__ import annotations

from typing import Any

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    claim_branch_name,
    staging_branch_name,
)
from perago.runtime.sweep.branches import Owners, Verdict, find_leftovers, judge, remove
from tests.support.worlds.world import World, make_task

HOUR = 3600.0


DAY = 24 * HOUR


def attempt_in_progress(world: World, *, retries: int = 0) -> Assignment:
    """Start an attempt and leave it in progress."""
    definition = make_task(retries=retries)
    world.start(definition)
    return world.poll(definition)


def stage(world: World, attempt: Attempt, execution: str = "e1", *, commit: bool = True) -> str:
    """Create a staging branch as an execution does."""
    name = staging_branch_name(attempt, execution)
    world.lake.create_branch(world.repository, name, "main")
    if commit:
        world.commit({"data/x": execution}, branch=name, metadata={"perago.staging_branch": name})
    return name


def claim(world: World, attempt: Attempt) -> str:
    name = claim_branch_name(attempt, "main")
    world.lake.create_branch(world.repository, name, "main")
    return name


def verdicts(world: World, *, complete: bool = True, tags: bool = False, **changed: Any) -> list[Verdict]:
    """Return what a sweep would do; by default it asks the world's orchestrator."""
    lake = changed.get("lake", world.lake)
    owners = Owners(changed.get("orchestrators", [world.orchestrator]), complete=complete)
    leftovers = find_leftovers(lake, changed.get("repositories", [world.repository]), tags=tags)
    return judge(lake, leftovers, owners, now=world.clock.now, older_than=changed.get("older_than", HOUR))


def sweep(world: World, **changed: Any) -> list[str]:
    """Sweep, and return the names of what was removed."""
    return [one.leftover.name for one, error in remove(world.lake, verdicts(world, **changed)) if not error]
