"""Runs as one transaction on the real lakeFS, with and without its fence: readers, races, and merges by hand."""

from __future__ import annotations

import threading
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.task import TaskDefinition
from perago.protocol.run_steps import MARKER_PATH, MARKER_TEXT, UNPUBLISHED
from tests.conftest import LakefsServer
from tests.support.faults.gates import Gated
from tests.support.faults.ports import before
from tests.support.worlds.histories import gated
from tests.support.worlds.lakefs_world import a_world, fence, opened
from tests.support.worlds.run_world import FIRST, FIVE, RunWorld, five_steps, opening, publishing, running
from tests.support.worlds.world import World


@pytest.fixture(params=["soft", "hard"])
def world(
    request: pytest.FixtureRequest, lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path
) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        if request.param == "hard":
            fence(made)
        yield made


def is_fenced(world: World) -> bool:
    return "_lakefs_actions/perago-fence.yaml" in world.files()


def test_readers_who_poll_all_the_time_never_see_a_part_of_a_run(
    world: World, lakefs_server: LakefsServer, tmp_path: Path
) -> None:
    runs, given = RunWorld.of(world, FIVE), world.files()
    over, seen = threading.Event(), []

    def read() -> None:
        with opened(lakefs_server, tmp_path / "reader") as lake:
            while not over.is_set():
                head = lake.head(world.repository, "main").id
                seen.append(frozenset(entry.path for entry in lake.list(world.repository, head, "")))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    ended = runs.finish(runs.start(five_steps()))
    over.set()
    for reader in readers:
        reader.join()

    assert ended.status == "COMPLETED", ended.reason
    whole = {*given, "data/first.txt", "data/last.txt", "data/left/made.txt", "data/right/made.txt"}
    assert set(seen) <= {frozenset(given), frozenset(whole)}
    assert frozenset(given) in seen
    assert world.head().metadata["perago.fence"] == ("hard" if is_fenced(world) else "soft")


def test_a_commit_by_hand_right_before_the_merge_is_not_overwritten(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    runs.start(five_steps())
    attempt = runs.until("publish")
    by_hand: list[str] = []

    def commit() -> None:
        if not by_hand:
            by_hand.append(world.commit({"data/first.txt": "by hand"}))

    ended = runs.execute(attempt, lake=before(world.lake, "merge", commit))

    assert ended.outcome.status == "FAILED", ended.outcome
    assert by_hand[0] in (ended.outcome.reason or "")
    assert world.head().id == by_hand[0]


def test_a_rebased_run_publishes_over_a_commit_right_before_the_merge(world: World) -> None:
    runs = RunWorld.of(world, FIVE)
    workflow = runs.start(five_steps(on_advanced="rebase"))
    attempt = runs.until("publish")
    by_hand: list[str] = []

    def commit() -> None:
        if not by_hand:
            by_hand.append(world.commit({"other/by-hand.txt": "by hand"}))

    runs.execute(attempt, lake=before(world.lake, "merge", commit))

    state = world.workflow(workflow)
    assert state.status == "COMPLETED", state.tasks[-1].reason
    assert world.history()[:2] == [state.output["ref"], by_hand[0]]
    assert world.files().items() >= {"other/by-hand.txt": "by hand", "data/last.txt": "made"}.items()


def test_the_server_refuses_every_merge_of_an_unpublished_run(
    world: World, lakefs_server: LakefsServer
) -> None:
    runs, given = RunWorld.of(world, [FIRST]), world.files()
    runs.start([opening(), running(FIRST), publishing("first")])
    runs.until("publish")
    world.lake.create_branch(world.repository, "fork", runs.run_branch(), hidden=False)
    world.commit({"data/more.txt": "more"}, branch="fork")
    world.lake.create_branch(world.repository, "release", "main", hidden=False)

    for source in (runs.run_branch(), "fork"):
        for target in ("main", "release"):
            path = f"/repositories/{world.repository}/refs/{source}/merge/{target}"
            with pytest.raises(urllib.error.HTTPError) as refused:
                lakefs_server.call("POST", path, {"message": "by hand"})
            assert refused.value.code == 412
            assert UNPUBLISHED in refused.value.read().decode()
    assert world.files() == given


def test_a_differing_marker_is_a_gate(world: World) -> None:
    runs = RunWorld.of(world, [FIRST])
    runs.start([opening(), running(FIRST), publishing("first")])
    attempt = runs.until("first")
    branch = runs.run_branch()
    assert list(world.lake.gates(world.repository, branch, branch)) == []
    changed = world.commit({MARKER_PATH: MARKER_TEXT + "# changed\n"}, branch=branch)
    assert list(world.lake.gates(world.repository, changed, branch)) == [MARKER_PATH]
    assert attempt.attempt.reference_task_name == "first"


WRITES = (
    "create_branch",
    "create_object",
    "delete",
    "commit",
    "merge",
    "create_tag",
    "drop_branch",
    "complete",
)
"""The calls that change something on a server."""
STEPS = [opening(), running(FIRST), publishing("first")]


@pytest.mark.slow
@pytest.mark.parametrize("step", [OPEN, PUBLISH], ids=["open", "publish"])
def test_a_worker_may_die_around_every_call_that_changes_something(
    world: World, step: TaskDefinition
) -> None:
    given, found, number, killed = world.files(), [], 0, True
    while killed:
        for after in (False, True):
            runs = RunWorld.of(world, [FIRST])
            origin = world.head().id
            workflow = runs.start(STEPS)
            attempt = runs.until("open" if step is OPEN else "publish")
            execution = gated(world, step, attempt)
            killed = kill_at(execution, number, after=after)
            if not killed:
                break
            if not set(world.files()) - set(given) <= {"data/first.txt"}:
                found.append(f"call {number}: readers see {sorted(world.files())}")
            world.orchestrator.time_out_in_progress("the worker is dead")
            ended = runs.finish(workflow)
            if ended.status != "COMPLETED" or ended.output["ref"] != world.head().id:
                found.append(f"call {number}, after={after}: {ended.status} {ended.reason}")
            if world.history().index(origin) > 1:
                found.append(f"call {number}, after={after}: published more than once")
            # The next run changes something again.
            world.commit({"data/first.txt": None} if "data/first.txt" in world.files() else {"x": "x"})
        number += 1
    assert number > 4
    assert found == []


def kill_at(execution: Gated, number: int, *, after: bool) -> bool:
    """Kill the execution before or after its writing call of that number.  Returns False if it makes fewer."""
    while not execution.ended:
        if execution.waiting in WRITES:
            if number == 0:
                if after:
                    execution.grant("do")
                execution.kill()
                return True
            number -= 1
        execution.grant("do")
    return False
