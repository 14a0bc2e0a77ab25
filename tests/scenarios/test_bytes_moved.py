"""The bytes that an attempt reports as moved, and as not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perago.runtime.attempt.observer import Traffic
from perago.runtime.execution_result import BytesMoved
from tests.support.worlds.world import World, change_nothing, make_task

INPUT = {"data/large.bin": "l" * 5000, "data/small.txt": "s" * 10, "other.txt": "not below the prefix"}


def rewrite_the_small_one(workspace: Path, params: Any) -> Any:
    (workspace / "small.txt").write_text("new bytes")
    return change_nothing(workspace, params)


def test_the_input_comes_the_change_goes_and_the_rest_is_saved(world: World) -> None:
    world.commit(INPUT)
    before = sum(len(text) for path, text in world.files().items() if path.startswith("data/"))
    settled = world.run(make_task(rewrite_the_small_one))
    assert settled.moved == BytesMoved(downloaded=before, uploaded=9, saved=before - 10)


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


def test_a_transfer_that_takes_long_says_how_far_it_is_and_a_short_one_nothing() -> None:
    said: list[str] = []
    now = [0.0]
    traffic = Traffic(said.append, lambda: now[0])
    for second, files, size in [(0.1, 1, 500_000), (0.7, 2, 1_000_000), (0.8, 1, 7), (1.3, 0, 2_000_000)]:
        now[0] = second
        traffic.down(files, size)
    traffic.save(10)
    now[0] = 2.0
    traffic.up(1, 40)
    assert said == [
        "download: 3 files, 1.5 MB",
        "download: 4 files, 3.5 MB",
        "upload: 1 files, 0.0 MB",
    ]
