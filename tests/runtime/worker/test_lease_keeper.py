from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable
from perago.runtime.worker.inbox import AttemptOver, Inbox
from perago.runtime.worker.leases import LeaseKeeper, lease_interval
from tests.support.servers.scripted_orchestrator import ScriptedOrchestrator, an_attempt, snapshot
from tests.support.worlds.clock import Clock
from tests.support.worlds.inboxes import HandledAtOnce
from tests.support.worlds.world import make_task

ATTEMPT = an_attempt()


def test_the_interval_is_a_third_of_the_response_time_out_that_was_polled() -> None:
    assert lease_interval(make_task(), 6) == 2


def test_without_a_polled_time_out_the_interval_is_a_third_of_the_declared_one() -> None:
    assert lease_interval(make_task(), 0) == 20


def test_an_attempt_of_an_unknown_task_is_extended_by_what_was_polled() -> None:
    assert lease_interval(None, 9) == 3


def keep_until(
    orchestrator: Any, seen: threading.Event, handle: Callable[[Any], object] = lambda _: None
) -> None:
    with LeaseKeeper(orchestrator, "worker", HandledAtOnce(handle)) as leases:
        leases.keep("execution", ATTEMPT, 0.01)
        assert seen.wait(10)


def test_a_lease_is_extended_again_and_again() -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], extend_lease=[None, None, None, None])

    keep_until(orchestrator, orchestrator.used_up["extend_lease"])


def test_a_lease_that_was_not_extended_is_tried_again_at_the_next_beat() -> None:
    away = OrchestratorUnavailable("away")
    orchestrator = ScriptedOrchestrator(current=[away], extend_lease=[away, away, None])

    keep_until(orchestrator, orchestrator.used_up["extend_lease"])

    assert len(orchestrator.asked("extend_lease")) >= 2


@pytest.mark.parametrize("status", ["TIMED_OUT", "COMPLETED", "CANCELED", "FAILED"])
def test_an_attempt_that_is_over_is_stopped_and_not_extended(status: str) -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT, status)], extend_lease=[None])
    reported: list[object] = []
    seen = threading.Event()

    def tell(message: object) -> None:
        reported.append(message)
        seen.set()

    keep_until(orchestrator, seen, tell)

    assert reported == [AttemptOver("execution", f"it is {status}")]
    assert orchestrator.asked("extend_lease") == []


def test_an_attempt_whose_workflow_is_gone_is_stopped() -> None:
    orchestrator = ScriptedOrchestrator(current=[OrchestratorNotFound("no such task")], extend_lease=[None])
    seen = threading.Event()

    keep_until(orchestrator, seen, lambda message: seen.set() if isinstance(message, AttemptOver) else None)


def test_an_attempt_that_was_queued_again_continues() -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT, "SCHEDULED")], extend_lease=[None, None])

    keep_until(
        orchestrator,
        orchestrator.used_up["extend_lease"],
        lambda message: pytest.fail(f"told: {message}"),
    )


def test_a_twin_that_is_let_go_does_not_take_the_others_lease_with_it() -> None:
    orchestrator = ScriptedOrchestrator(current=[snapshot(ATTEMPT)], extend_lease=[None] * 4)

    with LeaseKeeper(orchestrator, "worker", Inbox()) as leases:
        leases.keep("winner", ATTEMPT, 0.01)
        leases.keep("loser", ATTEMPT, 0.01)
        leases.let_go("loser")

        assert orchestrator.used_up["extend_lease"].wait(10)


def test_a_lease_that_is_let_go_is_not_extended_again() -> None:
    clock = Clock()
    ours, another = an_attempt(), an_attempt()
    orchestrator: Any = ScriptedOrchestrator(current=[snapshot(another)], extend_lease=[None, None])

    # With one thread a beat of ours, due before the other's, would come first.
    with LeaseKeeper(orchestrator, "worker", Inbox(), threads=1, clock=clock) as leases:
        leases.keep("ours", ours, 1.0)
        leases.let_go("ours")
        clock.now += 2
        leases.keep("another", another, 0.0)
        assert orchestrator.used_up["extend_lease"].wait(10)

    assert [attempt for attempt in orchestrator.asked("extend_lease") if attempt is ours] == []
