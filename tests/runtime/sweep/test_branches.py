"""Sweeping a lake: branches of attempts that are over and tags when asked for, and nothing that is in use."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeError, LakeNotFound, OrchestratorRefused, OrchestratorUnavailable
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    staging_branch_name,
)
from perago.protocol.outcome import Outcome
from perago.runtime.sweep.branches import find_leftovers, remove
from tests.support.faults.ports import Wrapped, before, recording, refusing
from tests.support.worlds.leftover_branches import DAY, attempt_in_progress, claim, stage, sweep, verdicts
from tests.support.worlds.world import World, make_task, published_ref


class TestOwners:
    """The orchestrator's word decides."""

    def test_branches_of_an_attempt_in_progress_stay_whatever_their_age(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        names = {stage(world, attempt), stage(world, attempt, "e2", commit=False), claim(world, attempt)}
        world.clock.sleep(59)
        assert sweep(world, older_than=0) == []
        assert set(world.leftovers()) == names
        assert {one.why for one in verdicts(world)} == {f"task {attempt.task_id} is IN_PROGRESS"}

    def test_branches_of_an_attempt_that_is_queued_again_stay(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        stage(world, attempt)
        world.orchestrator.requeue(attempt.task_id)
        assert sweep(world, older_than=0) == []

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"])
    def test_branches_of_an_attempt_that_ended_go_at_once(self, world: World, status: str) -> None:
        attempt = attempt_in_progress(world).attempt
        names = {stage(world, attempt), stage(world, attempt, "e2", commit=False), claim(world, attempt)}
        world.orchestrator.complete(attempt, Outcome(status, output={}), worker_id="w")  # type: ignore[arg-type]
        assert set(sweep(world, older_than=DAY)) == names
        assert world.leftovers() == []

    def test_branches_of_an_attempt_whose_lease_ran_out_go(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        name = stage(world, attempt)
        world.clock.sleep(61)
        assert sweep(world) == [name]

    def test_a_terminated_workflows_branches_go(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        name = stage(world, attempt)
        world.orchestrator.terminate_workflow(attempt.workflow_instance_id, "enough")
        assert sweep(world) == [name]

    def test_only_the_dead_attempt_of_a_step_loses_its_branches(self, world: World) -> None:
        first = attempt_in_progress(world, retries=1).attempt
        old = stage(world, first)
        second = world.retry(make_task()).attempt
        new = {stage(world, second), claim(world, second)}
        assert sweep(world) == [old]
        assert set(world.leftovers()) == new

    def test_an_orchestrator_that_does_not_know_the_task_is_not_the_last_to_be_asked(
        self, world: World, tmp_path: Path
    ) -> None:
        attempt = attempt_in_progress(world).attempt
        stage(world, attempt)
        with closing(LocalOrchestrator(tmp_path / "another.db")) as another:
            assert sweep(world, orchestrators=[another, world.orchestrator]) == []

    def test_a_task_that_no_orchestrator_of_the_root_knows_is_over(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        names = {stage(world, attempt), claim(world, attempt)}
        assert set(sweep(world, orchestrators=[])) == names

    def test_a_task_is_asked_for_once(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
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
        over, unsure = attempt_in_progress(world).attempt, attempt_in_progress(world).attempt
        names = {stage(world, over), stage(world, unsure)}
        world.orchestrator.complete(over, Outcome("COMPLETED", output={}), worker_id="w")

        def fails_for_one(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            if name == "current" and arguments[0].task_id == unsure.task_id:
                raise error("no route to the server")
            return call(*arguments)

        with pytest.raises(OrchestratorUnavailable, match=r"nothing was removed.*no route to the server"):
            sweep(world, orchestrators=[Wrapped(world.orchestrator, fails_for_one)])
        assert set(world.leftovers()) == names


class TestBarriers:
    """A publish request of a dead attempt may be in flight for as long as its claim is there."""

    def ended(self, world: World) -> Attempt:
        attempt = attempt_in_progress(world).attempt
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


class TestScope:
    @pytest.mark.parametrize(
        "name", ["feature", "perago-fence-abc", "perago-put-abc", "perago", "staging-perago-staging-x"]
    )
    def test_branches_of_others_are_not_even_read(self, world: World, name: str) -> None:
        world.lake.create_branch(world.repository, name, "main", hidden=False)
        assert verdicts(world, orchestrators=[]) == []

    @pytest.mark.parametrize("name", ["perago-staging-by-hand", "perago-claim-mine", "perago-staging-"])
    def test_a_name_that_perago_does_not_make_stays(self, world: World, name: str) -> None:
        world.lake.create_branch(world.repository, name, "main")
        world.clock.sleep(DAY)
        [verdict] = verdicts(world, orchestrators=[], older_than=0)
        assert not verdict.goes
        assert "does not create branches of this name" in verdict.why

    def test_without_a_name_all_repositories_are_swept(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        stage(world, attempt)
        world.lake.create_repository("talks")  # type: ignore[attr-defined]
        world.lake.create_branch("talks", staging_branch_name(attempt, "e2"), "main")
        found = find_leftovers(world.lake, [], tags=False)
        assert {one.repository for one in found} == {"songs", "talks"}
        assert [one.repository for one in find_leftovers(world.lake, ["talks"], tags=False)] == ["talks"]

    def test_a_repository_that_goes_meanwhile_is_passed_over_unless_it_was_named(self, world: World) -> None:
        stage(world, attempt_in_progress(world).attempt)

        class WithAGhost:
            def repositories(self) -> list[str]:
                return ["ghost", "songs"]

            def __getattr__(self, name: str) -> Any:
                return getattr(world.lake, name)

        assert len(find_leftovers(WithAGhost(), [], tags=False)) == 1  # type: ignore[arg-type]
        with pytest.raises(LakeNotFound, match="ghost"):
            find_leftovers(world.lake, ["ghost"], tags=False)

    def test_a_branch_that_cannot_be_removed_does_not_keep_the_others(self, world: World) -> None:
        attempt = attempt_in_progress(world).attempt
        names = [stage(world, attempt, execution) for execution in ("e1", "e2", "e3")]
        found = verdicts(world, orchestrators=[])

        def fails_for_one(name: str, call: Any, arguments: tuple[Any, ...]) -> Any:
            if name == "drop_branch" and arguments[1] == names[1]:
                raise LakeError("not today")
            return call(*arguments)

        ended = list(remove(Wrapped(world.lake, fails_for_one), found))
        assert [str(error or "") for _, error in ended] == ["", "not today", ""]
        assert world.leftovers() == [names[1]]


class TestWithAttempts:
    """A sweep beside real attempts."""

    def test_branches_of_a_dead_worker_are_removed_and_the_retry_completes(self, world: World) -> None:
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
