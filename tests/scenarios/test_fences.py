"""Every place where an attempt is asked for again: one that is over by then moves nothing and answers nothing."""

from __future__ import annotations

from collections.abc import Callable

from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.ports import after, before, refusing
from tests.support.worlds.world import World, abandon, make_task, published_ref

STALE = "no longer Conductor's current attempt"


def lease_of(world: World) -> Callable[[], None]:
    """Return a function that lets the lease of the attempt in progress run out."""
    return lambda: world.orchestrator.time_out_in_progress("the lease ran out")


def assert_stale(settled: ExecutionResult) -> None:
    assert settled.outcome.status == "FAILED", settled.outcome
    assert STALE in (settled.outcome.reason or "")


def test_an_attempt_that_is_stale_at_the_first_fence_stages_nothing_and_sends_nothing(world: World) -> None:
    definition, head = make_task(), world.head().id
    world.start(definition)

    settled = world.execute(
        definition,
        world.poll(definition),
        lake=refusing(world.lake, "create_branch", "upload"),
        orchestrator=refusing(before(world.orchestrator, "current", lease_of(world)), "complete"),
    )

    assert_stale(settled)
    assert world.head().id == head
    assert (world.leftovers(), world.workdirs()) == ([], [])


def test_an_attempt_that_is_stale_at_the_second_fence_publishes_nothing(world: World) -> None:
    definition, head = make_task(), world.head().id
    world.start(definition)

    settled = world.execute(
        definition,
        world.poll(definition),
        lake=refusing(after(world.lake, "commit", lease_of(world)), "merge", "relocate"),
        orchestrator=refusing(world.orchestrator, "complete"),
    )

    assert_stale(settled)
    assert "TIMED_OUT" in (settled.outcome.reason or "")
    assert world.head().id == head
    assert (world.leftovers(), world.workdirs()) == ([], [])


def test_a_stale_attempt_leaves_no_tag_that_says_it_replaced_something(world: World) -> None:
    definition = make_task()
    world.start(definition)
    abandoned = abandon(world, definition)
    lake = refusing(after(world.lake, "commit", lease_of(world)), "create_tag", "relocate")

    assert_stale(world.execute(definition, world.retry(definition), lake=lake))

    assert world.head().id == abandoned


def test_an_attempt_that_is_stale_once_the_tag_is_made_does_not_relocate(world: World) -> None:
    definition = make_task()
    world.start(definition)
    abandoned = abandon(world, definition)
    lake = refusing(after(world.lake, "create_tag", lease_of(world)), "relocate")

    assert_stale(world.execute(definition, world.retry(definition), lake=lake))

    assert world.head().id == abandoned


def test_a_stale_attempt_is_not_answered_with_work_that_was_done_before(world: World) -> None:
    definition = make_task(on_abandoned="reuse")
    world.start(definition)
    abandon(world, definition)
    retry = world.retry(definition)

    orchestrator = before(world.orchestrator, "current", lease_of(world))
    assert_stale(world.execute(definition, retry, orchestrator=orchestrator))


def test_a_stale_attempt_that_was_refused_is_not_answered_with_its_retrys_work(world: World) -> None:
    definition = make_task(on_abandoned="reuse")
    world.start(definition)
    first, published = world.poll(definition), []

    def the_retry_publishes() -> None:
        published.append(published_ref(world.execute(definition, world.retry(definition))))

    settled = world.execute(definition, first, lake=before(world.lake, "merge", the_retry_publishes))

    assert_stale(settled)
    assert world.head().id == published[0]
