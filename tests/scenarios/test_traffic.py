"""What an attempt says it moved, and what it says it did not need to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perago.runtime.traffic import Moved
from tests.scenarios.world import World, change_nothing, make_task

INPUT = {"data/large.bin": "l" * 5000, "data/small.txt": "s" * 10, "other.txt": "not below the prefix"}


def rewrite_the_small_one(workspace: Path, params: Any) -> Any:
    (workspace / "small.txt").write_text("new bytes")
    return change_nothing(workspace, params)


def test_the_input_comes_the_change_goes_and_the_rest_is_saved(world: World) -> None:
    world.commit(INPUT)
    before = sum(len(text) for path, text in world.files().items() if path.startswith("data/"))
    settled = world.run(make_task(rewrite_the_small_one))
    assert settled.moved == Moved(downloaded=before, uploaded=9, saved=before - 10)


def test_an_attempt_that_changes_nothing_sends_nothing(world: World) -> None:
    world.commit(INPUT)
    settled = world.run(make_task(change_nothing))
    assert settled.moved.uploaded == 0
    assert settled.moved.saved == settled.moved.downloaded


def test_an_attempt_that_fails_has_moved_its_input(world: World) -> None:
    def body(workspace: Path, params: Any) -> Any:
        raise RuntimeError("no")

    settled = world.run(make_task(body))
    assert settled.moved.downloaded > 0
    assert (settled.moved.uploaded, settled.moved.saved) == (0, 0)
