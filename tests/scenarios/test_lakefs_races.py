"""Eight publishers race from one A on the real server, behind the hard fence, round after round.

The policy is `supersede`: only a merge can be fenced.  `replace` moves a branch by a hard reset, which no server
compares with anything, and `PERAGO_FENCE=hard` therefore refuses it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeConflict
from perago.protocol.names import parse_internal_branch
from perago.runtime.execution_result import ExecutionResult
from tests.conftest import LakefsServer
from tests.support.faults.ports import Wrapped, recording
from tests.support.worlds.lakefs_world import a_world, action_runs, eight_at_once, fence
from tests.support.worlds.world import World, change_nothing, make_task, published_ref

pytestmark = pytest.mark.slow
PUBLISHERS = 8
ROUNDS = 6
"""On each of the two servers."""


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        fence(made)
        yield made


def racing_body(workspace: Path, params: Any) -> Any:
    """A file that no other execution writes: merges of it never conflict, so only the fence can refuse them."""
    (workspace / f"{workspace.name}.txt").write_text("made")
    return change_nothing(workspace, params)


TASK = make_task(racing_body, on_abandoned="supersede")


def together(world: World, call: str) -> Any:
    """A lake on which the eight meet right before `call`."""
    barrier = threading.Barrier(PUBLISHERS)

    def around(name: str, make: Any, arguments: tuple[Any, ...]) -> Any:
        if name == call:
            barrier.wait(timeout=120)
        return make(*arguments)

    return Wrapped(world.lake, around)


def check_round(world: World, a: str, ended: list[ExecutionResult]) -> list[ExecutionResult]:
    """Check that one of eight reports success and that its commit on A is the head; returns the losers."""
    [winner] = [settled for settled in ended if settled.outcome.status == "COMPLETED"]
    assert published_ref(winner) == world.head().id
    assert world.head().parents == (a,)
    assert world.head().metadata["perago.fence"] == "hard"
    assert world.leftovers() == []
    return [settled for settled in ended if settled is not winner]


def test_of_eight_workflows_one_publishes_and_the_server_refuses_seven_merges(
    world: World, lakefs_server: LakefsServer
) -> None:
    refused = 0
    for number in range(ROUNDS):
        a = world.head().id
        for _ in range(PUBLISHERS):
            world.start(TASK, text=f"round {number}", ref=a)
        assignments = [world.poll(TASK) for _ in range(PUBLISHERS)]
        lake = together(world, "merge")
        ended = eight_at_once(
            lambda n, lake=lake, assignments=assignments: world.execute(
                TASK, assignments[n], lake=lake, fence="hard"
            )
        )
        for loser in check_round(world, a, ended):
            assert (loser.outcome.status, loser.refused) == ("FAILED", True)
            # The server refused the merge, and the reason names the head that was read then.
            assert f"head {world.head().id}" in (loser.outcome.reason or "")
            refused += 1
        world.orchestrator.time_out_in_progress("the losers' retries are not wanted")
        drain(world)
    assert refused == ROUNDS * (PUBLISHERS - 1)
    assert action_runs(lakefs_server, world.repository).count("failed") == refused


def test_of_eight_twins_the_claim_lets_one_merge(world: World, lakefs_server: LakefsServer) -> None:
    calls: list[str] = []
    for number in range(ROUNDS):
        a = world.head().id
        workflow = world.start(TASK, text=f"round {number}")
        assignment, lake = world.poll(TASK), recording(together(world, "create_branch"), calls)
        ended = eight_at_once(
            lambda _, lake=lake, assignment=assignment: world.execute(
                TASK, assignment, lake=lake, fence="hard"
            )
        )
        for loser in check_round(world, a, ended):
            assert (loser.outcome.status, loser.outcome.send) == ("LOST_TO_TWIN", False)
        state = world.workflow(workflow)
        assert [(task.status, task.retry_count) for task in state.tasks] == [("COMPLETED", 0)]
        assert state.output["ref"] == world.head().id
    assert calls.count("merge") == ROUNDS
    # One more than the rounds: the fence was put on the branch by a merge that already carried it.
    assert action_runs(lakefs_server, world.repository) == ["completed"] * (ROUNDS + 1)


def _is_claim(name: str) -> bool:
    branch = parse_internal_branch(name)
    return branch is not None and branch.kind == "claim"


def test_of_eight_twins_that_all_believe_to_hold_the_claim_the_fence_lets_one_merge(
    world: World, lakefs_server: LakefsServer
) -> None:
    """The fence alone, with the claim out of the way: seven learn from the branch that a twin was first, or from the
    orchestrator that the attempt is over."""

    def everyone_has_the_claim(name: str, make: Any, arguments: tuple[Any, ...]) -> Any:
        if name == "create_branch" and _is_claim(arguments[1]):
            with suppress(LakeConflict):
                make(*arguments)
            return None
        return make(*arguments)

    for number in range(ROUNDS):
        a = world.head().id
        workflow = world.start(TASK, text=f"round {number}")
        assignment, lake = world.poll(TASK), Wrapped(together(world, "merge"), everyone_has_the_claim)
        ended = eight_at_once(
            lambda _, lake=lake, assignment=assignment: world.execute(
                TASK, assignment, lake=lake, fence="hard"
            )
        )
        for loser in check_round(world, a, ended):
            assert not loser.outcome.send
        assert world.workflow(workflow).output["ref"] == world.head().id
    runs = action_runs(lakefs_server, world.repository)
    assert runs.count("failed") == ROUNDS * (PUBLISHERS - 1)


def drain(world: World) -> None:
    """End whatever is still queued, so that the next round polls only its own."""
    for run in world.orchestrator.workflows(100):
        if run.status == "RUNNING":
            world.orchestrator.terminate_workflow(run.id, "the round is over")
