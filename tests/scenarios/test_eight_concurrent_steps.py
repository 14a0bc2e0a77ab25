"""Eight workflows at once on one branch: with views apart all of them land, with one view exactly one does.

On the embedded lake, and on the real one with and without the fence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.runtime.execution_result import ExecutionResult
from tests.contract.lakes import LAKES
from tests.support.faults.ports import Wrapped
from tests.support.worlds.concurrent_steps import Side, a_side, violations
from tests.support.worlds.lakefs_world import eight_at_once, fence
from tests.support.worlds.world import World, published_ref

EIGHT = 8
KINDS = {"local": "local", "lakefs, soft": "lakefs", "lakefs, hard": "lakefs"}


@pytest.fixture(params=[pytest.param(kind, marks=LAKES[lake].marks) for kind, lake in KINDS.items()])
def crowded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A repository with eight folders, and a file that all of them see nothing of."""
    with LAKES[KINDS[request.param]].open(request) as opened:
        world = World(opened.lake, opened.repository, tmp_path)
        world.commit({f"t{number}/input.txt": f"input {number}" for number in range(EIGHT)} | {"other": "o"})
        if request.param.endswith("hard"):
            fence(world)
        yield world
        world.orchestrator.close()


def all_bodies_first(world: World) -> Any:
    """Return a lake on which no step reads the head to publish before all eight bodies are done."""
    met, claimed = threading.Barrier(EIGHT), threading.local()

    def around(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "create_branch" and "-claim-" in arguments[1] and not getattr(claimed, "yes", False):
            claimed.yes = True
            met.wait(timeout=120)
        return call(*arguments)

    return Wrapped(world.lake, around)


def run_all(world: World, sides: list[Side]) -> list[ExecutionResult]:
    lake = all_bodies_first(world)
    return eight_at_once(lambda n: world.execute(sides[n].task, sides[n].current, lake=lake))


def test_with_views_apart_all_eight_land_and_history_is_one_line(crowded: World) -> None:
    a = crowded.head().id
    sides = [a_side(crowded, f"t{number}") for number in range(EIGHT)]
    ended = run_all(crowded, sides)
    refs = {published_ref(settled) for settled in ended}
    assert len(refs) == EIGHT
    assert crowded.history()[: EIGHT + 1][-1] == a
    assert set(crowded.history()[:EIGHT]) == refs
    newest = list(crowded.lake.log(crowded.repository, "main", EIGHT))
    if newest[0].metadata["perago.fence"] == "hard":
        # Past a soft fence a merge may land on more commits than its words could know of.
        assert [int(one.metadata["perago.rebased_over"]) for one in newest] == list(range(EIGHT))[::-1]
    assert list(violations(crowded, *sides, a=a)) == []
    assert crowded.leftovers() == []


def test_with_one_view_one_lands_and_the_others_reasons_name_commit_and_path(crowded: World) -> None:
    a = crowded.head().id
    sides = [a_side(crowded, "t0") for _ in range(EIGHT)]
    ended = run_all(crowded, sides)
    [winner] = [settled for settled in ended if settled.outcome.status == "COMPLETED"]
    made = published_ref(winner)
    assert crowded.lake.commit_at(crowded.repository, made).parents == (a,)
    for settled in ended:
        if settled is winner:
            continue
        assert (settled.outcome.status, settled.refused) == ("FAILED", True), settled.outcome
        reason = settled.outcome.reason or ""
        told = f"{made} changed 't0/out/part-" in reason and "(made by Perago task" in reason
        if crowded.head().metadata["perago.fence"] == "soft":
            # A merge can land on the winner's commit between check and swap: never accepted, and reported as another's.
            told = "changed 't0/out/part-" in reason or "what this task sees differs there" in reason
        assert told, reason


def test_half_apart_and_half_not(crowded: World) -> None:
    """Two steps in each of four folders: one of each two lands."""
    a = crowded.head().id
    sides = [a_side(crowded, f"t{number % 4}") for number in range(EIGHT)]
    ended = run_all(crowded, sides)
    done = [number % 4 for number, settled in enumerate(ended) if settled.outcome.status == "COMPLETED"]
    assert sorted(done) == [0, 1, 2, 3], [settled.outcome for settled in ended]
    accepted = [
        side for side, settled in zip(sides, ended, strict=True) if settled.outcome.status == "COMPLETED"
    ]
    assert list(violations(crowded, *accepted, a=a)) == []
