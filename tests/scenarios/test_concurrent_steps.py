"""Steps that publish to one branch side by side: each as if it had started from the head that it lands on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from perago.errors import HeadMoved, LakeUnavailable
from perago.protocol.refusal import BODY_NOT_RUN
from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.ports import Wrapped, before, recording
from tests.support.worlds.concurrent_steps import (
    TIMING,
    Side,
    a_side,
    a_task,
    below,
    body,
    inside,
    no_change,
    outside,
    takes_ours_back,
    there_and_back,
    violations,
)
from tests.support.worlds.lakefs_world import fence
from tests.support.worlds.world import World, abandon, make_task, published_ref

POLICIES = ["supersede", "reuse"]


@pytest.fixture(autouse=True, params=["without the fence", "with the fence"])
def inputs(world: World, request: pytest.FixtureRequest) -> None:
    """Commit what the steps read; the embedded lake ignores the fence's file, its fence is always hard."""
    if request.param == "with the fence":
        fence(world)
    world.commit({"left/input.txt": "left 0", "right/input.txt": "right 0", "other.txt": "other"})


def refused(settled: ExecutionResult) -> str:
    assert (settled.outcome.status, settled.refused) == ("FAILED", True), settled.outcome
    return settled.outcome.reason or ""


def dies_before_completing(side: Side) -> str:
    """An attempt that publishes and is never heard of again; returns its commit."""

    def die() -> None:
        raise RuntimeError("the worker dies here")

    orchestrator = before(side.world.orchestrator, "complete", die)
    with pytest.raises(RuntimeError, match="dies here"):
        side.world.execute(side.task, side.current, orchestrator=orchestrator, timing=TIMING)
    made = side.world.head().id
    assert side.retry()
    return made


class TestOthersAdvancedTheBranch:
    @pytest.mark.parametrize("policy", POLICIES)
    def test_two_steps_from_one_commit_both_publish(self, world: World, policy: str) -> None:
        a = world.head().id
        left, right = a_side(world, "left", policy=policy), a_side(world, "right", policy=policy)
        first, second = published_ref(left.execute()), published_ref(right.execute())
        assert world.history()[:3] == [second, first, a]
        said = world.head().metadata
        assert (said["perago.rebased_over"], said["perago.supersedes"], said["perago.input_ref"]) == (
            "1",
            "",
            a,
        )
        assert (said["perago.staging_base"], said["perago.publish_tries"]) == (a, "1")
        assert list(violations(world, left, right, a=a)) == []
        assert world.leftovers() == []

    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_commit_outside_the_view_is_kept(self, world: World, policy: str) -> None:
        side = a_side(world, "left", policy=policy)
        outside(world)
        there_and_back(world)
        kept = world.files()["other.txt"]
        published_ref(side.execute())
        assert world.files()["other.txt"] == kept
        assert world.head().metadata["perago.rebased_over"] == "3"

    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("later", [0, 1, 6])
    def test_a_commit_in_the_view_is_refused_with_the_commit_and_the_path(
        self, world: World, policy: str, later: int
    ) -> None:
        side = a_side(world, "left", policy=policy)
        outside(world)
        inside(world)
        culprit = world.head().id
        for _ in range(later):
            outside(world)
        head = world.head().id
        reason = refused(side.execute())
        assert ", not a Perago task, changed 'left/input.txt' (this task sees it) on branch" in reason
        assert f"{culprit} changed 'left/input.txt'" in reason
        assert (world.head().id, world.leftovers()) == (head, [])

    def test_an_unchanged_result_keeps_its_input(self, world: World) -> None:
        a, side = world.head().id, a_side(world, "left", made=no_change)
        outside(world)
        head = world.head().id
        assert (published_ref(side.execute()), world.head().id) == (a, head)

    def test_an_unchanged_result_over_a_changed_view_is_refused(self, world: World) -> None:
        side = a_side(world, "left", made=no_change)
        inside(world)
        refused(side.execute())

    def test_without_rebase_the_same_head_is_refused_as_ever(self, world: World) -> None:
        definition, a = make_task(on_abandoned="supersede"), world.head().id
        outside(world)
        assert "may not cover" in refused(world.run(definition, ref=a))

    def test_a_neighbour_whose_name_begins_the_same_is_not_in_the_view(self, world: World) -> None:
        side = a_side(world, "left")
        world.commit({"left-over/x": "1", "left.txt": "1", "leftist": "1"})
        published_ref(side.execute())

    def test_a_body_is_not_run_when_an_accepted_step_has_changed_the_view(self, world: World) -> None:
        ran: list[int] = []

        def counted(workspace: Path, params: Any) -> Any:
            ran.append(1)
            return body(workspace, params)

        side, other = a_side(world, "left", made=counted), a_side(world, "left", made=body)
        made = published_ref(other.execute())
        reason = refused(side.execute())
        workflow, _, step = other.key.partition("/")
        assert reason.startswith(f"step {step!r} of workflow {workflow} changed 'left/out/part-")
        assert BODY_NOT_RUN in reason
        assert f"{made} changed 'left/out/part-" in reason
        assert ran == []


class TestOwnCommitsInBetween:
    @pytest.mark.parametrize("policy", ["supersede"])
    def test_the_retry_replaces_its_own_files_and_keeps_others(self, world: World, policy: str) -> None:
        a, left, right = world.head().id, a_side(world, "left"), a_side(world, "right")
        abandoned = dies_before_completing(left)
        published_ref(right.execute())
        outside(world)
        published_ref(left.execute())
        said = world.head().metadata
        assert (said["perago.supersedes"], said["perago.rebased_over"]) == (abandoned, "2")
        assert said["perago.staging_base"] == said["perago.expected_head"]
        assert list(violations(world, left, right, a=a)) == []

    def test_an_unchanged_retry_takes_its_abandoned_files_back(self, world: World) -> None:
        a, left, right = world.head().id, a_side(world, "left"), a_side(world, "right")
        before_it = below(world, a, "left/")
        dies_before_completing(left)
        published_ref(right.execute())
        left.task = a_task("left", made=no_change)
        ref = published_ref(left.execute())
        assert below(world, ref, "left/") == before_it == below(world, "main", "left/")
        assert list(violations(world, left, right, a=a)) == []

    def test_a_result_that_the_abandoned_commit_holds_already_is_answered_with_it(self, world: World) -> None:
        def always_the_same(workspace: Path, params: Any) -> Any:
            (workspace / "result.txt").write_text("the same")
            return no_change(workspace, params)

        left, right = a_side(world, "left", made=always_the_same), a_side(world, "right")
        abandoned = dies_before_completing(left)
        head = published_ref(right.execute())
        assert (published_ref(left.execute()), world.head().id) == (abandoned, head)

    def test_a_revert_of_our_publication_by_others_is_not_published_over(self, world: World) -> None:
        left = a_side(world, "left")
        dies_before_completing(left)
        takes_ours_back(world)
        culprit = world.head().id
        outside(world)
        reason = refused(left.execute())
        assert culprit in reason
        assert "changed 'left/out/part-" in reason

    def test_a_change_below_an_own_commit_is_found(self, world: World) -> None:
        """Past a soft fence an own commit can land on a change of the view: no retry covers the mix."""
        left = a_side(world, "left")
        made = dies_before_completing(left)
        signed = dict(world.lake.commit_at(world.repository, made).metadata)
        inside(world)
        culprit = world.head().id
        world.commit({"left/out/part-mixed": "mixed"}, metadata=signed)
        assert culprit in refused(left.execute())

    @pytest.mark.parametrize("events", list(itertools.product([outside, there_and_back], repeat=2)))
    def test_own_and_others_commits_may_alternate(self, world: World, events: tuple[Any, Any]) -> None:
        a, left = world.head().id, a_side(world, "left")
        for event in events:
            event(world)
            dies_before_completing(left)
        events[0](world)
        published_ref(left.execute())
        assert list(violations(world, left, a=a)) == []


class TestReuse:
    def test_the_recorded_commit_is_found_below_others(self, world: World) -> None:
        left, right = a_side(world, "left", policy="reuse"), a_side(world, "right", policy="reuse")
        made = dies_before_completing(left)
        published_ref(right.execute())
        outside(world)
        head = world.head().id
        assert (published_ref(left.execute()), world.head().id) == (made, head)

    @pytest.mark.parametrize("event", [inside, takes_ours_back])
    def test_an_abandoned_publication_is_not_reused_once_the_view_has_changed(
        self, world: World, event: Any
    ) -> None:
        left = a_side(world, "left", policy="reuse")
        dies_before_completing(left)
        event(world)
        refused(left.execute())

    def test_a_commit_that_landed_on_another_view_does_not_count(self, world: World) -> None:
        left = a_side(world, "left", policy="reuse")
        made = dies_before_completing(left)
        said = dict(world.lake.commit_at(world.repository, made).metadata)
        inside(world)
        # As a merge past a soft fence leaves it: the same words, and another parent.
        world.commit({"left/out/part-mixed": "mixed"}, metadata=said)
        refused(left.execute())


class TestTheHeadMovesWhileItPublishes:
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("times", [1, 3])
    def test_publication_is_decided_and_fenced_again_before_each_try(
        self, world: World, policy: str, times: int
    ) -> None:
        a, side, calls, left = world.head().id, a_side(world, "left", policy=policy), [], [times]

        def move_the_head(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            calls.append(name)
            if name == "merge" and left[0]:
                left[0] -= 1
                outside(world)
            return call(*arguments)

        lake = Wrapped(world.lake, move_the_head)
        orchestrator = recording(world.orchestrator, calls)
        settled = world.execute(side.task, side.current, lake=lake, orchestrator=orchestrator, timing=TIMING)
        published_ref(settled)
        assert calls.count("merge") == times + 1 == settled.tries
        for place in [at for at, name in enumerate(calls) if name == "merge"]:
            assert calls[place - 1] == "current"
        assert world.head().metadata["perago.publish_tries"] == str(times + 1)
        assert list(violations(world, side, a=a)) == []

    def test_a_change_of_the_view_in_between_is_refused(self, world: World) -> None:
        side = a_side(world, "left")
        lake = before(world.lake, "merge", lambda: inside(world))
        reason = refused(world.execute(side.task, side.current, lake=lake, timing=TIMING))
        assert f"{world.head().id} changed 'left/input.txt'" in reason
        assert world.leftovers() == []

    def test_an_attempt_that_goes_stale_in_between_stops_before_it_stages_again(self, world: World) -> None:
        side, calls = a_side(world, "left"), []
        dies_before_completing(side)
        outside(world)

        def stale() -> None:
            outside(world)
            side.retry()

        lake = recording(before(world.lake, "merge", stale), calls)
        settled = world.execute(side.task, side.current, lake=lake, timing=TIMING)
        assert not settled.outcome.send
        assert (calls.count("merge"), calls.count("commit")) == (1, 2)
        assert "create_branch" not in calls[calls.index("merge") :]

    def test_a_staging_that_is_gone_ends_it(self, world: World) -> None:
        side = a_side(world, "left")

        def revoke() -> None:
            for name in world.leftovers():
                world.lake.drop_branch(world.repository, name)

        calls: list[str] = []
        lake = recording(before(world.lake, "merge", revoke), calls)
        refused(world.execute(side.task, side.current, lake=lake, timing=TIMING))
        assert calls.count("merge") == 1

    def test_tries_end_with_the_merge_time_out(self, world: World) -> None:
        now = [0.0]

        def clock() -> float:
            now[0] += 0.5
            return now[0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        side, calls = a_side(world, "left"), []

        def always(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            calls.append(name)
            if name == "merge":
                outside(world)
            return call(*arguments)

        timing = type(TIMING)(clock=clock, sleep=sleep)
        reason = refused(
            world.execute(side.task, side.current, lake=Wrapped(world.lake, always), timing=timing)
        )
        tries = calls.count("merge")
        assert tries > 1
        assert f"after {tries} tries" in reason
        assert now[0] < 75

    def test_a_restaged_commit_is_merged_again_unchanged(self, world: World) -> None:
        a, side, calls = world.head().id, a_side(world, "left"), []
        dies_before_completing(side)
        lake = recording(before(world.lake, "merge", lambda: outside(world)), calls)
        published_ref(world.execute(side.task, side.current, lake=lake, timing=TIMING))
        assert (calls.count("merge"), calls.count("commit")) == (2, 2)
        assert list(violations(world, side, a=a)) == []

    def test_no_second_try_follows_a_merge_without_an_answer(self, world: World) -> None:
        side, calls = a_side(world, "left"), []

        def cut(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            calls.append(name)
            if name == "merge":
                raise LakeUnavailable("merge: cut")
            return call(*arguments)

        refused(world.execute(side.task, side.current, lake=Wrapped(world.lake, cut), timing=TIMING))
        assert calls.count("merge") == 1

    def test_a_refused_try_that_is_on_the_branch_all_the_same_is_the_publication(self, world: World) -> None:
        """No lake says so; but if one did, no second commit would follow."""
        a, side, calls = world.head().id, a_side(world, "left"), []

        def lies(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            calls.append(name)
            answer = call(*arguments)
            if name == "merge":
                outside(world)
                raise HeadMoved("it moved")
            return answer

        settled = world.execute(side.task, side.current, lake=Wrapped(world.lake, lies), timing=TIMING)
        assert published_ref(settled) == world.history()[1]
        assert calls.count("merge") == 1
        assert list(violations(world, side, a=a)) == []


class TestActions:
    """lakeFS runs the premerge actions of the merge's source, so work staged before an action was added is staged again."""

    GATE = json.dumps({"name": "gate", "on": {"post-commit": {}}, "hooks": []})

    def test_actions_that_were_added_are_not_passed_by(self, world: World) -> None:
        a, side, calls = world.head().id, a_side(world, "left"), []
        world.commit({"_lakefs_actions/gate.yaml": self.GATE})
        lake = recording(world.lake, calls)
        published_ref(world.execute(side.task, side.current, lake=lake, timing=TIMING))
        assert calls.count("commit") == 2
        assert world.head().metadata["perago.staging_base"] == world.head().first_parent
        assert "_lakefs_actions/gate.yaml" in world.files(world.head().metadata["perago.staging_commit"])
        assert list(violations(world, side, a=a)) == []

    def test_a_task_that_sees_the_whole_repository_does_not_see_them_change(self, world: World) -> None:
        side = a_side(world, "left", prefix="/", made=lambda workspace, _: body(workspace / "left", _))
        world.commit({"_lakefs_actions/gate.yaml": self.GATE})
        published_ref(side.execute())
        outside_it = a_side(world, "left", prefix="/", made=lambda workspace, _: body(workspace / "left", _))
        world.commit({"_lakefs_actions/gate.yaml": self.GATE + "\n", "other.txt": "seen"})
        assert "changed 'other.txt'" in refused(outside_it.execute())


def test_abandoned_work_of_another_policy_is_of_the_same_step(world: World) -> None:
    """A step whose declaration was changed to rebase between two attempts."""
    plain = make_task(body, name="make_left", prefix="/left", on_abandoned="supersede")
    a = world.head().id
    workflow = world.start(plain)
    abandon(world, plain)
    outside(world)
    task = make_task(body, name="make_left", prefix="/left", on_abandoned="supersede", on_advanced="rebase")
    side = Side(world, task, "left/", workflow, world.retry(plain))
    published_ref(side.execute())
    assert list(violations(world, side, a=a)) == []
