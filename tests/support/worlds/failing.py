"""Attempts that are to fail."""

from __future__ import annotations

from tests.support.worlds.world import World


def fails(world: World, definition, status: str, *texts: str, **changed) -> None:
    """Run the next attempt and see that it ends as `status`, says why, and leaves the lake as it was."""
    head, files = world.head().id, world.files()
    settled = world.execute(definition, world.poll(definition), **changed)
    assert settled.outcome.status == status, settled.outcome
    for text in texts:
        assert text in (settled.outcome.reason or "")
    assert (world.head().id, world.files()) == (head, files)
    assert world.leftovers() == []
    assert world.workdirs() == []
