"""A publish without an answer, and requests that land late: read back, never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.errors import LakeUnavailable
from perago.protocol.names import claim_branch_name
from tests.support.faults.ports import Wrapped, after, before, refusing
from tests.support.worlds.world import World, abandon, change_nothing, make_task, published_ref, write_result

POLICIES = ["replace", "replace-signed", "supersede", "reuse"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_merge_that_landed_without_an_answer_is_found_on_the_branch(world: World, policy: str) -> None:
    definition = make_task(on_abandoned=policy)

    def cut() -> None:
        raise LakeUnavailable("the connection was cut")

    world.start(definition)
    settled = world.execute(definition, world.poll(definition), lake=after(world.lake, "merge", cut))
    assert published_ref(settled) == world.head().id
    assert world.files()["data/result.txt"] == "made"
    assert world.leftovers() == []


def test_a_relocation_that_landed_without_an_answer_is_found_on_the_branch(world: World) -> None:
    definition, a = make_task(), world.head().id

    def cut() -> None:
        raise LakeUnavailable("the connection was cut")

    for body in (write_result, change_nothing):
        world.start(definition, ref=a)
        abandon(world, definition) if body is write_result else world.commit({"data/y": "y"})
        assignment = world.retry(definition)
        settled = world.execute(make_task(body), assignment, lake=after(world.lake, "relocate", cut))
        assert published_ref(settled) == world.head().id
        assert world.leftovers() == []
        if body is write_result:
            world.lake.create_branch(world.repository, "back", a)
            world.lake.relocate(world.repository, "main", "back", world.head().id, 60)


@pytest.mark.parametrize("call", ["merge", "relocate"])
def test_a_publish_that_never_arrived_is_refused_and_nothing_moves(world: World, call: str) -> None:
    definition = make_task()
    world.start(definition)
    if call == "relocate":
        abandon(world, definition)
        assignment = world.retry(definition)
    else:
        assignment = world.poll(definition)
    h = world.head().id
    lake = refusing(world.lake, call, error=LakeUnavailable("no route"))
    settled = world.execute(definition, assignment, lake=lake)
    assert settled.outcome.status == "FAILED"
    assert "no route" in (settled.outcome.reason or "")
    assert world.head().id == h


def test_a_branch_that_cannot_be_read_after_an_unanswered_publish_fails_closed(world: World) -> None:
    definition = make_task()
    world.start(definition)
    assignment = world.poll(definition)
    lake = refusing(world.lake, "merge", "log", error=LakeUnavailable("gone dark"))
    settled = world.execute(definition, assignment, lake=lake)
    assert settled.outcome.status == "FAILED"
    assert "decides by the head" in (settled.outcome.reason or "")
    # Its request may still be in flight: the claim stays, and tells the retry to stop it.
    assert world.leftovers() == [claim_branch_name(assignment.attempt, "main")]
    assert published_ref(world.execute(definition, world.retry(definition))) == world.head().id
    assert world.leftovers() == []


def test_a_dead_attempts_merge_that_lands_late_is_refused_because_the_retry_revoked_it(world: World) -> None:
    definition, a = make_task(), world.head().id
    workflow = world.start(definition)
    first = world.poll(definition)
    retried = []

    def the_retry_goes_first() -> None:
        # The first attempt's merge is on its way when its lease runs out and the retry does all its work.
        retried.append(world.execute(make_task(change_nothing), world.retry(definition)))

    late = world.execute(definition, first, lake=before(world.lake, "merge", the_retry_goes_first))
    assert published_ref(retried[0]) == a
    assert late.outcome.status == "FAILED"
    assert world.head().id == a
    assert world.workflow(workflow).output == {"ref": a}


def test_the_claim_is_held_until_the_result_is_accepted(world: World) -> None:
    definition = make_task()
    world.start(definition)
    assignment = world.poll(definition)
    claim, seen = claim_branch_name(assignment.attempt, "main"), []

    def look() -> None:
        seen.append(claim in world.leftovers())

    orchestrator = after(before(world.orchestrator, "complete", look), "complete", look)
    world.execute(definition, assignment, orchestrator=orchestrator)
    assert seen == [True, True]
    assert world.leftovers() == []


def test_after_a_rerun_the_commit_of_the_earlier_run_is_not_taken_for_a_twins(world: World) -> None:
    """Conductor's `rerun` keeps the task id; only the scheduled time tells the runs apart."""
    definition = make_task()
    world.start(definition)
    first = world.poll(definition)
    with pytest.raises(LakeUnavailable):
        world.execute(
            definition,
            first,
            orchestrator=refusing(world.orchestrator, "complete", error=LakeUnavailable("dies here")),
        )
    scheduled = first.attempt.scheduled_time + 1000
    rerun = replace(first, attempt=replace(first.attempt, scheduled_time=scheduled))

    def as_rerun(name, call, arguments):
        answer = call(*arguments)
        return replace(answer, scheduled_time=scheduled) if name == "current" else answer

    settled = world.execute(
        make_task(change_nothing),
        rerun,
        lake=before(world.lake, "relocate", lambda: world.commit({"data/by-hand.txt": "x"})),
        orchestrator=Wrapped(world.orchestrator, as_rerun),
    )
    assert (settled.outcome.status, settled.outcome.send) == ("FAILED", True)
    assert "not made by Perago" in (settled.outcome.reason or "")
