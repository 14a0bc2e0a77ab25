"""Sweeping a lake: branches of attempts that are over and tags when asked for, and nothing that is in use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeError, LakeNotFound, OrchestratorRefused, OrchestratorUnavailable
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    claim_branch_name,
    proof_branch_name,
    put_branch_name,
    replaced_tag_name,
    staging_branch_name,
)
from perago.protocol.outcome import Outcome
from perago.runtime.sweep.branches import Owners, Verdict, find_leftovers, judge, remove
from tests.support.clock import Clock
from tests.support.ports import Wrapped, before, recording, refusing
from tests.support.world import World, make_task, published_ref

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An embedded lake and orchestrator on one clock that only moves when told."""
    clock = Clock()
    lake = LocalLake(tmp_path / "lake", clock=lambda: int(clock.now * 1e9))
    lake.create_repository("songs")
    made = World(lake, "songs", tmp_path, clock)
    made.commit({"data/input.txt": "in"})
    yield made
    made.orchestrator.close()
    lake.close()


def begun(world: World, *, retries: int = 0) -> Assignment:
    """An attempt in progress."""
    definition = make_task(retries=retries)
    world.start(definition)
    return world.poll(definition)


def stage(world: World, attempt: Attempt, execution: str = "e1", *, commit: bool = True) -> str:
    """A staging branch as an execution makes it."""
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
    """What a sweep would do, asking the world's orchestrator unless told otherwise."""
    lake = changed.get("lake", world.lake)
    owners = Owners(changed.get("orchestrators", [world.orchestrator]), complete=complete)
    leftovers = find_leftovers(lake, changed.get("repositories", [world.repository]), tags=tags)
    return judge(lake, leftovers, owners, now=world.clock.now, older_than=changed.get("older_than", HOUR))


def sweep(world: World, **changed: Any) -> list[str]:
    """Sweep, and name what went."""
    return [one.leftover.name for one, error in remove(world.lake, verdicts(world, **changed)) if not error]


class TestOwners:
    """The orchestrator's word decides."""

    def test_branches_of_an_attempt_in_progress_stay_whatever_their_age(self, world: World) -> None:
        attempt = begun(world).attempt
        names = {stage(world, attempt), stage(world, attempt, "e2", commit=False), claim(world, attempt)}
        world.clock.sleep(59)
        assert sweep(world, older_than=0) == []
        assert set(world.leftovers()) == names
        assert {one.why for one in verdicts(world)} == {f"task {attempt.task_id} is IN_PROGRESS"}

    def test_branches_of_an_attempt_that_is_queued_again_stay(self, world: World) -> None:
        attempt = begun(world).attempt
        stage(world, attempt)
        world.orchestrator.requeue(attempt.task_id)
        assert sweep(world, older_than=0) == []

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"])
    def test_branches_of_an_attempt_that_ended_go_at_once(self, world: World, status: str) -> None:
        attempt = begun(world).attempt
        names = {stage(world, attempt), stage(world, attempt, "e2", commit=False), claim(world, attempt)}
        world.orchestrator.complete(attempt, Outcome(status, output={}), worker_id="w")  # type: ignore[arg-type]
        assert set(sweep(world, older_than=DAY)) == names
        assert world.leftovers() == []

    def test_branches_of_an_attempt_whose_lease_ran_out_go(self, world: World) -> None:
        attempt = begun(world).attempt
        name = stage(world, attempt)
        world.clock.sleep(61)
        assert sweep(world) == [name]

    def test_a_terminated_workflows_branches_go(self, world: World) -> None:
        attempt = begun(world).attempt
        name = stage(world, attempt)
        world.orchestrator.terminate(attempt.workflow_instance_id, "enough")
        assert sweep(world) == [name]

    def test_only_the_dead_attempt_of_a_step_loses_its_branches(self, world: World) -> None:
        first = begun(world, retries=1).attempt
        old = stage(world, first)
        second = world.retry(make_task()).attempt
        new = {stage(world, second), claim(world, second)}
        assert sweep(world) == [old]
        assert set(world.leftovers()) == new

    def test_an_orchestrator_that_does_not_know_the_task_is_not_the_last_to_be_asked(
        self, world: World, tmp_path: Path
    ) -> None:
        attempt = begun(world).attempt
        stage(world, attempt)
        with closing(LocalOrchestrator(tmp_path / "another.db")) as another:
            assert sweep(world, orchestrators=[another, world.orchestrator]) == []

    def test_a_task_that_no_orchestrator_of_the_root_knows_is_over(self, world: World) -> None:
        attempt = begun(world).attempt
        names = {stage(world, attempt), claim(world, attempt)}
        assert set(sweep(world, orchestrators=[])) == names

    def test_a_task_is_asked_for_once(self, world: World) -> None:
        attempt = begun(world).attempt
        for execution in ("e1", "e2", "e3"):
            stage(world, attempt, execution)
        claim(world, attempt)
        calls: list[str] = []
        verdicts(world, orchestrators=[recording(world.orchestrator, calls)])
        assert calls == ["current"]

    @pytest.mark.parametrize("error", [OrchestratorUnavailable, OrchestratorRefused])
    def test_an_orchestrator_that_cannot_be_asked_leaves_everything_as_it_is(
        self, world: World, error: type[Exception]
    ) -> None:
        over, unsure = begun(world).attempt, begun(world).attempt
        names = {stage(world, over), stage(world, unsure)}
        world.orchestrator.complete(over, Outcome("COMPLETED", output={}), worker_id="w")

        def fails_for_one(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            if name == "current" and arguments[0].task_id == unsure.task_id:
                raise error("no route to the server")
            return call(*arguments)

        with pytest.raises(OrchestratorUnavailable, match=r"nothing was removed.*no route to the server"):
            sweep(world, orchestrators=[Wrapped(world.orchestrator, fails_for_one)])
        assert set(world.leftovers()) == names


class TestAge:
    """Where no orchestrator knows the task, and another one may."""

    def unknown(self, world: World, **changed: Any) -> Attempt:
        return replace(begun(world).attempt, task_id="11111111-2222-3333-4444-555555555555", **changed)

    def test_a_staging_branch_goes_by_the_age_of_its_own_commit(self, world: World) -> None:
        name = stage(world, self.unknown(world))
        world.clock.sleep(HOUR)
        assert sweep(world, complete=False) == []
        world.clock.sleep(1)
        assert sweep(world, complete=False) == [name]

    def test_a_staging_branch_that_is_still_at_its_input_stays(self, world: World) -> None:
        world.clock.sleep(DAY)
        name = stage(world, self.unknown(world), commit=False)
        [verdict] = verdicts(world, complete=False, older_than=0)
        assert (verdict.leftover.name, verdict.goes) == (name, False)
        assert "nothing tells its age" in verdict.why

    def test_a_claim_goes_by_the_time_its_task_was_scheduled(self, world: World) -> None:
        name = claim(world, self.unknown(world, scheduled_time=int(world.clock.now * 1000)))
        world.clock.sleep(HOUR)
        assert sweep(world, complete=False) == []
        world.clock.sleep(1)
        assert sweep(world, complete=False) == [name]

    def test_a_claim_that_stays_says_when_it_will_go(self, world: World) -> None:
        claim(world, self.unknown(world))
        world.clock.sleep(HOUR / 2)
        [verdict] = verdicts(world, complete=False)
        assert verdict.why == (
            "no orchestrator knows its task, and it is 30 minutes old: it goes when it is older than 60 minutes, "
            "in 30 minutes"
        )

    def test_a_claim_stays_as_long_as_a_staging_branch_of_its_task(self, world: World) -> None:
        unknown = self.unknown(world)
        names = {claim(world, unknown), stage(world, unknown, commit=False)}
        world.clock.sleep(DAY)
        assert sweep(world, complete=False) == []
        assert set(world.leftovers()) == names
        assert "a staging branch of its task stays" in {one.why for one in verdicts(world, complete=False)}

    def test_a_claim_that_does_not_tell_stays(self, world: World) -> None:
        claim(world, self.unknown(world, scheduled_time=0))
        world.clock.sleep(DAY)
        assert sweep(world, complete=False, older_than=0) == []

    def test_an_id_that_is_a_slug_is_not_asked_for(self, world: World) -> None:
        name = stage(world, replace(begun(world).attempt, task_id="task of / another kind"))
        world.clock.sleep(2 * HOUR)
        owners = [refusing(world.orchestrator, "current")]
        assert sweep(world, complete=True, orchestrators=owners) == [name]

    def test_a_clock_behind_the_commits_removes_nothing(self, world: World) -> None:
        stage(world, self.unknown(world))
        world.clock.sleep(-DAY)
        assert sweep(world, complete=False, older_than=0) == []


class TestProofs:
    def test_a_branch_that_a_killed_proof_left_goes_by_its_age(self, world: World) -> None:
        name = proof_branch_name(world.clock.now, "0123456789ab")
        world.lake.create_branch(world.repository, name, "main")
        world.clock.sleep(HOUR)
        assert sweep(world, orchestrators=[]) == []
        world.clock.sleep(1)
        [verdict] = verdicts(world, orchestrators=[])
        assert verdict.why == "the fence was proven on it, and it is 60 minutes old"
        assert sweep(world, orchestrators=[]) == [name]

    def test_a_branch_that_a_killed_put_left_goes_by_its_age(self, world: World) -> None:
        name = put_branch_name(world.clock.now, "0123456789ab")
        world.lake.create_branch(world.repository, name, "main")
        world.clock.sleep(HOUR)
        assert sweep(world, orchestrators=[]) == []
        world.clock.sleep(1)
        [verdict] = verdicts(world, orchestrators=[])
        assert verdict.why == "`perago put` staged on it, and it is 60 minutes old"
        assert sweep(world, orchestrators=[]) == [name]


class TestBarriers:
    """A publish request of a dead attempt may be in flight for as long as its claim is there."""

    def ended(self, world: World) -> Attempt:
        attempt = begun(world).attempt
        world.orchestrator.complete(attempt, Outcome("FAILED", reason="x"), worker_id="w")
        return attempt

    def test_claims_go_after_stagings_and_one_barrier_for_their_branch(self, world: World) -> None:
        calls: list[str] = []
        for attempt in (self.ended(world), self.ended(world)):
            claim(world, attempt)
            stage(world, attempt)
        list(remove(recording(world.lake, calls), verdicts(world)))
        assert calls == ["drop_branch", "drop_branch", "barrier", "drop_branch", "drop_branch"]
        assert world.leftovers() == []

    def test_a_barrier_that_is_not_confirmed_keeps_the_claim(self, world: World) -> None:
        attempt = self.ended(world)
        kept, gone = claim(world, attempt), stage(world, attempt)
        lake = refusing(world.lake, "barrier", error=LakeError("no answer"))
        ended = {one.leftover.name: error for one, error in remove(lake, verdicts(world))}
        assert str(ended[kept]) == "no answer"
        assert ended[gone] is None
        assert world.leftovers() == [kept]

    def test_a_staging_that_cannot_be_dropped_keeps_the_claim(self, world: World) -> None:
        attempt = self.ended(world)
        names = {claim(world, attempt), stage(world, attempt)}
        lake = refusing(world.lake, "drop_branch", error=LakeError("no answer"))
        assert {one.leftover.name for one, error in remove(lake, verdicts(world)) if error} == names
        assert set(world.leftovers()) == names


class TestWhatIsLookedAt:
    @pytest.mark.parametrize(
        "name", ["feature", "perago-fence-abc", "perago-put-abc", "perago", "staging-perago-staging-x"]
    )
    def test_other_peoples_branches_are_not_even_looked_at(self, world: World, name: str) -> None:
        world.lake.create_branch(world.repository, name, "main", hidden=False)
        assert verdicts(world, orchestrators=[]) == []

    @pytest.mark.parametrize("name", ["perago-staging-by-hand", "perago-claim-mine", "perago-staging-"])
    def test_a_name_that_perago_does_not_make_stays(self, world: World, name: str) -> None:
        world.lake.create_branch(world.repository, name, "main")
        world.clock.sleep(DAY)
        [verdict] = verdicts(world, orchestrators=[], older_than=0)
        assert not verdict.goes
        assert "none that Perago makes" in verdict.why

    def test_without_a_name_all_repositories_are_looked_into(self, world: World) -> None:
        attempt = begun(world).attempt
        stage(world, attempt)
        world.lake.create_repository("talks")  # type: ignore[attr-defined]
        world.lake.create_branch("talks", staging_branch_name(attempt, "e2"), "main")
        found = find_leftovers(world.lake, [], tags=False)
        assert {one.repository for one in found} == {"songs", "talks"}
        assert [one.repository for one in find_leftovers(world.lake, ["talks"], tags=False)] == ["talks"]

    def test_a_repository_that_goes_meanwhile_is_passed_over_unless_it_was_named(self, world: World) -> None:
        stage(world, begun(world).attempt)

        class WithAGhost:
            def repositories(self) -> list[str]:
                return ["ghost", "songs"]

            def __getattr__(self, name: str) -> Any:
                return getattr(world.lake, name)

        assert len(find_leftovers(WithAGhost(), [], tags=False)) == 1  # type: ignore[arg-type]
        with pytest.raises(LakeNotFound, match="ghost"):
            find_leftovers(world.lake, ["ghost"], tags=False)

    def test_one_that_cannot_be_removed_does_not_keep_the_others(self, world: World) -> None:
        attempt = begun(world).attempt
        names = [stage(world, attempt, execution) for execution in ("e1", "e2", "e3")]
        found = verdicts(world, orchestrators=[])

        def fails_for_one(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            if name == "drop_branch" and arguments[1] == names[1]:
                raise LakeError("not today")
            return call(*arguments)

        ended = list(remove(Wrapped(world.lake, fails_for_one), found))
        assert [str(error or "") for _, error in ended] == ["", "not today", ""]
        assert world.leftovers() == [names[1]]


class TestTags:
    """Heads that were replaced are kept until someone gives them up by name and age."""

    @pytest.fixture
    def tag(self, world: World) -> str:
        head = world.commit({"data/replaced.txt": "x"})
        name = replaced_tag_name(begun(world).attempt, head)
        world.lake.create_tag(world.repository, name, head)
        world.lake.create_tag(world.repository, "release-1", head)
        return name

    def test_they_stay_unless_asked_for(self, world: World, tag: str) -> None:
        world.clock.sleep(DAY)
        assert verdicts(world, older_than=0) == []

    def test_they_go_by_the_age_of_the_replaced_head(self, world: World, tag: str) -> None:
        world.clock.sleep(HOUR)
        assert sweep(world, tags=True) == []
        world.clock.sleep(1)
        assert sweep(world, tags=True) == [tag]
        assert [one.name for one in world.lake.tags(world.repository, "")] == ["release-1"]


class TestWithAttempts:
    """A sweep beside real attempts."""

    def test_what_a_dead_worker_left_goes_and_the_retry_completes(self, world: World) -> None:
        definition = make_task(on_abandoned="supersede")
        workflow = world.start(definition)

        def die() -> None:
            raise RuntimeError("the worker dies here")

        orchestrator = before(world.orchestrator, "complete", die)
        with pytest.raises(RuntimeError, match="dies here"):
            world.execute(definition, world.poll(definition), orchestrator=orchestrator)
        assert len(world.leftovers()) == 1
        assert sweep(world, older_than=0) == []
        world.clock.sleep(61)
        assert len(sweep(world)) == 1
        assert published_ref(world.execute(definition, world.poll(definition))) == world.head().id
        assert world.workflow(workflow).status == "COMPLETED"

    @pytest.mark.parametrize("policy", ["replace", "supersede", "reuse"])
    def test_a_sweep_before_every_single_call_of_an_attempt_does_not_harm_it(
        self, world: World, policy: str
    ) -> None:
        definition = make_task(on_abandoned=policy)
        workflow = world.start(definition)
        swept: list[str] = []

        def sweeping(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            swept.extend(sweep(world, older_than=0, complete=False))
            return call(*arguments)

        settled = world.execute(
            definition,
            world.poll(definition),
            lake=Wrapped(world.lake, sweeping),
            orchestrator=Wrapped(world.orchestrator, sweeping),
        )
        assert published_ref(settled) == world.head().id == world.workflow(workflow).output["ref"]
        # Between the accepted result and its own clean-up the attempt is over, and its branches are fair game.
        assert len(swept) == len(set(swept)) <= 2
        assert world.leftovers() == []
