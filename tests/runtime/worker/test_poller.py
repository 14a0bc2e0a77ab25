from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from perago.errors import OrchestratorError, OrchestratorUnavailable
from perago.orchestrator.base import Assignment
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.inbox import Message, Polled, PollerEnded
from perago.runtime.worker.poller import Poller
from tests.support.servers.scripted_orchestrator import ScriptedOrchestrator, an_assignment
from tests.support.worlds.inboxes import HandledAtOnce

Attempts = SimpleQueue[Sequence[Assignment]]


@contextmanager
def polling(orchestrator: Any, names: Sequence[str]) -> Iterator[tuple[Poller, Attempts]]:
    """A broker at work; it has ended when the block has."""
    polled: Attempts = SimpleQueue()
    ended = threading.Event()

    def handle(message: Message) -> None:
        if isinstance(message, Polled):
            polled.put(message.found)
        elif isinstance(message, PollerEnded):
            ended.set()

    poller = Poller(
        orchestrator, names, "worker", HandledAtOnce(handle), pool=0, health_state=HealthState(names)
    )
    poller.start()
    try:
        yield poller, polled
    finally:
        poller.stop()
        assert ended.wait(10)


def test_nothing_is_polled_while_no_slot_is_free() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[]])

    with polling(orchestrator, ["make"]) as (poller, _):
        poller.offer(0, taken=0)

    assert orchestrator.calls == []


def test_a_worker_without_tasks_asks_for_nothing_until_it_is_stopped() -> None:
    orchestrator = ScriptedOrchestrator()

    with polling(orchestrator, []) as (poller, _):
        poller.offer(1, taken=0)

    assert orchestrator.calls == []


def test_a_poller_asks_for_as_many_attempts_as_there_are_free_slots() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[an_assignment()], []])

    with polling(orchestrator, ["make"]) as (poller, polled):
        poller.offer(3, taken=0)
        assert polled.get(timeout=10) == [an_assignment()]
        assert orchestrator.used_up["poll"].wait(10)

    counts = [count for _, count, _ in orchestrator.asked("poll")]
    # A slot that is about to get an attempt is no longer free, though it has not confirmed yet.
    assert counts[:2] == [3, 2]


def test_a_slot_whose_attempt_is_on_its_way_is_not_free_a_second_time() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[an_assignment()], [an_assignment("task-2")], []])

    with polling(orchestrator, ["make"]) as (poller, polled):
        poller.offer(1, taken=0)
        polled.get(timeout=10)
        poller.offer(1, taken=0)
        assert polled.empty()
        poller.offer(1, taken=1)
        assert polled.get(timeout=10) == [an_assignment("task-2")]


def test_a_single_task_name_is_polled_with_long_polls() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[], []])

    with polling(orchestrator, ["make"]) as (poller, _):
        poller.offer(1, taken=0)
        assert orchestrator.used_up["poll"].wait(10)

    assert {wait for _, _, wait in orchestrator.asked("poll")} == {1.0}


def test_when_idle_each_round_polls_for_the_name_whose_turn_it_is_and_waits_in_no_poll() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[]] * 12, queued_task_names=[[]])

    with polling(orchestrator, ["a", "b", "c"]) as (poller, _):
        poller.offer(1, taken=0)
        assert orchestrator.used_up["poll"].wait(10)

    asked = orchestrator.asked("poll")
    assert {wait for _, _, wait in asked} == {0.0}
    # The first round takes the worker for busy; from then on one name follows the other, so that none is left out.
    assert [name for name, _, _ in asked[:9]] == ["a", "b", "c", "b", "c", "a", "b", "c", "a"]


def test_when_idle_what_has_something_to_take_is_polled_for_in_the_same_round() -> None:
    orchestrator = ScriptedOrchestrator(
        poll=[[], [], [], [], [an_assignment()], []], queued_task_names=[["a"], []]
    )

    with polling(orchestrator, ["a", "b", "c"]) as (poller, polled):
        poller.offer(1, taken=0)
        assert polled.get(timeout=10) == [an_assignment()]

    assert [what for _, what in orchestrator.calls[3:6]] == [("b", "c", "a"), ("b", 1, 0.0), ("a", 1, 0.0)]


@pytest.mark.parametrize("error", [OrchestratorError("403 Forbidden"), KeyError("a mistake of ours")])
def test_every_name_is_polled_for_if_the_queued_names_are_unknown(error: Exception) -> None:
    orchestrator = ScriptedOrchestrator(poll=[[]] * 12, queued_task_names=[error])

    with polling(orchestrator, ["a", "b", "c"]) as (poller, _):
        poller.offer(1, taken=0)
        assert orchestrator.used_up["poll"].wait(10)

    assert [name for name, _, _ in orchestrator.asked("poll")[:9]] == [*"abc", *"bca", *"cab"]


def test_no_slot_is_free_so_nobody_is_asked_what_is_waiting() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[], [an_assignment()]], queued_task_names=[[]])

    with polling(orchestrator, ["a", "b"]) as (poller, polled):
        poller.offer(1, taken=0)
        assert polled.get(timeout=10) == [an_assignment()]
        poller.offer(0, taken=1)

    assert orchestrator.asked("queued_task_names") == []


def test_while_there_is_work_several_names_are_asked_without_waiting() -> None:
    orchestrator = ScriptedOrchestrator(poll=[[], [an_assignment()], [], [], []], queued_task_names=[[]])

    with polling(orchestrator, ["a", "b"]) as (poller, _):
        poller.offer(9, taken=0)
        assert orchestrator.used_up["poll"].wait(10)

    assert [wait for _, _, wait in orchestrator.asked("poll")][:4] == [0.0] * 4


def test_a_server_that_is_away_is_asked_again() -> None:
    orchestrator = ScriptedOrchestrator(
        poll=[OrchestratorUnavailable("away"), OrchestratorUnavailable("away"), [an_assignment()], []]
    )

    with polling(orchestrator, ["make"]) as (poller, polled):
        poller.offer(1, taken=0)

        assert polled.get(timeout=10) == [an_assignment()]
