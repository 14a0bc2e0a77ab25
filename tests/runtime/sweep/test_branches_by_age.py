"""Branches and tags that the sweep removes by their age, because no orchestrator knows their task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    probe_branch_name,
    put_branch_name,
    replaced_tag_name,
)
from tests.support.faults.ports import refusing
from tests.support.worlds.leftover_branches import (
    DAY,
    HOUR,
    attempt_in_progress,
    claim,
    stage,
    sweep,
    verdicts,
)
from tests.support.worlds.world import World


class TestAge:
    """Branches of a task that no known orchestrator has, but another one may."""

    def unknown(self, world: World, **changed: Any) -> Attempt:
        return replace(
            attempt_in_progress(world).attempt, task_id="11111111-2222-3333-4444-555555555555", **changed
        )

    def test_a_staging_branch_goes_by_the_age_of_its_own_commit(self, world: World) -> None:
        name = stage(world, self.unknown(world))
        world.clock.sleep(HOUR)
        assert sweep(world, complete=False) == []
        world.clock.sleep(1)
        assert sweep(world, complete=False) == [name]

    def test_a_staging_branch_that_is_still_at_its_input_goes_by_the_time_its_task_was_scheduled(
        self, world: World
    ) -> None:
        world.clock.sleep(DAY)
        name = stage(world, self.unknown(world, scheduled_time=int(world.clock.now * 1000)), commit=False)
        world.clock.sleep(HOUR)
        assert sweep(world, complete=False) == []
        world.clock.sleep(1)
        assert sweep(world, complete=False) == [name]

    def test_a_branch_of_unknown_age_stays(self, world: World) -> None:
        world.clock.sleep(DAY)
        name = stage(world, self.unknown(world, scheduled_time=0), commit=False)
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
        names = {claim(world, unknown), stage(world, replace(unknown, scheduled_time=0), commit=False)}
        world.clock.sleep(DAY)
        assert sweep(world, complete=False) == []
        assert set(world.leftovers()) == names
        assert "a staging branch of its task stays" in {one.why for one in verdicts(world, complete=False)}

    def test_a_claim_that_does_not_tell_stays(self, world: World) -> None:
        claim(world, self.unknown(world, scheduled_time=0))
        world.clock.sleep(DAY)
        assert sweep(world, complete=False, older_than=0) == []

    def test_an_id_that_is_a_slug_is_not_asked_for(self, world: World) -> None:
        name = stage(world, replace(attempt_in_progress(world).attempt, task_id="task of / another kind"))
        world.clock.sleep(2 * HOUR)
        owners = [refusing(world.orchestrator, "current")]
        assert sweep(world, complete=True, orchestrators=owners) == [name]

    def test_a_clock_behind_the_commits_removes_nothing(self, world: World) -> None:
        stage(world, self.unknown(world))
        world.clock.sleep(-DAY)
        assert sweep(world, complete=False, older_than=0) == []


class TestProofs:
    def test_a_branch_that_a_killed_proof_left_goes_by_its_age(self, world: World) -> None:
        name = probe_branch_name(world.clock.now, "0123456789ab")
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


class TestTags:
    """Heads that were replaced are kept until someone gives them up by name and age."""

    @pytest.fixture
    def tag(self, world: World) -> str:
        head = world.commit({"data/replaced.txt": "x"})
        name = replaced_tag_name(attempt_in_progress(world).attempt, head)
        world.lake.create_tag(world.repository, name, head)
        world.lake.create_tag(world.repository, "release-1", head)
        return name

    def test_tags_stay_unless_asked_for(self, world: World, tag: str) -> None:
        world.clock.sleep(DAY)
        assert verdicts(world, older_than=0) == []

    def test_tags_are_removed_by_the_age_of_the_replaced_head(self, world: World, tag: str) -> None:
        world.clock.sleep(HOUR)
        assert sweep(world, tags=True) == []
        world.clock.sleep(1)
        assert sweep(world, tags=True) == [tag]
        assert [one.name for one in world.lake.tags(world.repository, "")] == ["release-1"]
