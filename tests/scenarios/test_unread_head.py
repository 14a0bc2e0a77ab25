"""An attempt that began at the head does not read it again where the lake compares: what happens when it has moved.

The merge expects A.  The lake refuses it, nothing is published, and then the head is read and the table decides by it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago.lake.lakefs.fence import FENCE_PATH, FENCE_TEXT
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.publication import TargetBranch
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.target_branch import read_target
from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.gates import SWAP, Grant
from tests.support.faults.ports import before, recording
from tests.support.worlds.histories import advance, advance_to, fresh_world, gated
from tests.support.worlds.server_order import ServerOrder
from tests.support.worlds.world import Made, World, change_nothing, make_task, published_ref, write_result

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]
THEIRS = {"data/by-someone-else.txt": "x"}
TRIES = ("current", "merge", "relocate", "create_tag", "head")


@pytest.fixture
def hard(world: World) -> World:
    """A world whose lake compares heads by itself, and was seen to."""
    if world.lake.fence_level(world.repository, world.head().id) == "soft":
        world.commit({FENCE_PATH: FENCE_TEXT})
    assert world.lake.fence_level(world.repository, world.head().id) == "hard"
    return world


def moving(world: World, made: list[str]) -> Callable[[Path, Any], Made]:
    """A body under which someone else commits to the branch."""

    def body(workspace: Path, params: Any) -> Made:
        made.append(world.commit(THEIRS))
        return write_result(workspace, params)

    return body


def run(world: World, definition: Any, calls: list[str], **changed: Any) -> ExecutionResult:
    """Run an attempt, and record its calls between the first fence and the end."""
    world.start(definition)
    lake = recording(changed.pop("lake", world.lake), calls)
    orchestrator = recording(world.orchestrator, calls)
    settled = world.execute(
        definition, world.poll(definition), lake=lake, orchestrator=orchestrator, **changed
    )
    calls[:] = [call for call in calls[calls.index("current") :] if call in TRIES]
    return settled


class TestSomeoneElseCommitsWhileTheBodyRuns:
    def test_under_replace_an_unsigned_child_is_replaced_after_the_refusal_and_kept_under_a_tag(
        self, hard: World
    ) -> None:
        theirs, calls, a = [], [], hard.head().id
        c = published_ref(run(hard, make_task(moving(hard, theirs)), calls))
        assert hard.history()[:2] == [c, a]
        assert hard.replaced() == theirs
        # A fence before the merge, one before the head is read for the second try, one before each call of that.
        assert calls[:4] == ["current", "current", "merge", "current"]
        assert [call for call in calls[4:] if call != "current"] == ["head", "create_tag", "relocate"]
        assert calls[calls.index("relocate") - 1] == "current"
        assert hard.leftovers() == []

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    def test_the_commit_of_others_stays_under_the_other_policies(self, hard: World, policy: str) -> None:
        theirs, calls = [], []
        settled = run(hard, make_task(moving(hard, theirs), on_abandoned=policy), calls)
        assert (settled.outcome.status, settled.refused, hard.head().id) == ("FAILED", True, theirs[0])
        assert f"head {theirs[0]}" in (settled.outcome.reason or "")
        assert calls.count("merge") == 1
        assert hard.leftovers() == []

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_soft_worker_reads_the_head_and_never_sends_that_merge(self, hard: World, policy: str) -> None:
        theirs, calls = [], []
        run(hard, make_task(moving(hard, theirs), on_abandoned=policy), calls, fence="soft")
        assert "merge" not in calls


class TestAfterTheRefusal:
    def test_a_head_that_moves_once_more_is_refused_for_good(self, hard: World) -> None:
        theirs, calls, last = [], [], []
        lake = before(hard.lake, "relocate", lambda: last.append(hard.commit({"data/more.txt": "y"})))
        settled = run(hard, make_task(moving(hard, theirs)), calls, lake=lake)
        assert (settled.outcome.status, settled.refused) == ("FAILED", True)
        assert hard.history()[:2] == [last[0], theirs[0]]
        assert (calls.count("merge"), calls.count("relocate")) == (1, 1)

    @pytest.mark.parametrize("policy", POLICIES)
    def test_an_attempt_that_is_not_current_any_more_reads_and_moves_nothing(
        self, hard: World, policy: str
    ) -> None:
        theirs, calls = [], []
        definition = make_task(moving(hard, theirs), on_abandoned=policy)
        lake = before(hard.lake, "merge", lambda: hard.orchestrator.time_out_in_progress("dead") and None)
        settled = run(hard, definition, calls, lake=lake)
        assert not settled.outcome.send
        assert calls == ["current", "current", "merge", "current"]
        assert hard.head().id == theirs[0]

    @pytest.mark.parametrize("policy", POLICIES)
    def test_an_own_publication_meanwhile_is_replaced_as_the_table_says(
        self, hard: World, policy: str
    ) -> None:
        a, late, calls = hard.head().id, [], []

        def body(workspace: Path, params: Any) -> Made:
            # As left by an earlier attempt of this step whose request was not stopped.
            late.append(
                hard.commit({"data/late.txt": "x"}, metadata={KEY: f"{workflow}/step", TASK_ID: "dead"})
            )
            return write_result(workspace, params)

        definition = make_task(body, on_abandoned=policy)
        workflow = hard.start(definition)
        lake = recording(hard.lake, calls)
        made = published_ref(hard.execute(definition, hard.poll(definition), lake=lake))
        below = [a] if policy.startswith("replace") else [late[0], a]
        assert hard.history()[: 1 + len(below)] == [made, *below]
        assert hard.replaced() == (late if policy.startswith("replace") else [])
        assert "data/late.txt" not in hard.files()
        assert calls.count("merge") == (1 if policy.startswith("replace") else 2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("answer", ["do", "lose"])
@pytest.mark.parametrize("believed", ["soft", "hard"])
def test_a_merge_that_landed_on_another_head_is_not_accepted_whatever_was_proven_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, believed: str, answer: Grant, policy: str
) -> None:
    """A lake that does not compare; `hard` is one that did when it was last asked."""
    monkeypatch.setattr(ServerOrder, "fence_level", lambda *_: believed)
    world = fresh_world(tmp_path, hard=False)
    definition = make_task(on_abandoned=policy)
    workflow = world.start(definition)
    one = gated(world, definition, world.poll(definition))
    assert advance_to(one, SWAP)
    theirs = world.commit(THEIRS)
    one.grant(answer)
    advance(one, None)
    assert world.head().first_parent == theirs
    assert world.workflow(workflow).tasks[0].status == "FAILED"
    reason = world.workflow(workflow).tasks[0].reason or ""
    assert world.head().id in reason
    assert theirs in reason
    assert ("actions.enabled" in reason) == (believed == "hard")
    world.orchestrator.close()
    world.lake.close()


def _without_reading(self: Publisher, level: object) -> TargetBranch:
    """The mutant: the head as it was before the body, whatever the lake is."""
    before, self.at_head = self.at_head, None
    return before or read_target(self.lake, self.signature.workspace, self.policy)


@pytest.mark.parametrize("mutant", [False, True])
def test_a_no_op_that_did_not_read_the_head_would_keep_an_input_that_is_not_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: bool
) -> None:
    if mutant:
        monkeypatch.setattr(Publisher, "_target", _without_reading)
    world = fresh_world(tmp_path)
    theirs: list[str] = []

    def body(workspace: Path, params: Any) -> Made:
        theirs.append(world.commit(THEIRS))
        return change_nothing(workspace, params)

    settled = world.run(make_task(body, on_abandoned="supersede"))
    assert settled.outcome.status == ("COMPLETED" if mutant else "FAILED")
    world.orchestrator.close()
    world.lake.close()
