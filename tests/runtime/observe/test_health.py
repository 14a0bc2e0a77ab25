"""When a worker calls itself unhealthy."""

from __future__ import annotations

from perago.runtime.observe.health import HealthState, Limits, check
from perago.runtime.observe.sanitize import Masker
from tests.support.worlds.clock import Clock

LIMITS = Limits(poll=60, supervisor=30)


def test_a_worker_that_polls_and_moves_is_healthy() -> None:
    clock = Clock()
    health_state = HealthState(["clean", "train"], clock=clock)
    clock.now += 100
    health_state.note_poll("clean")
    health_state.note_poll("train")
    health_state.beat()
    clock.now += 5

    health = check(health_state, LIMITS)

    assert health.healthy
    assert health.poll_age == {"clean": 5, "train": 5}


def test_one_task_with_stalled_polling_makes_the_worker_unhealthy_and_is_named() -> None:
    clock = Clock()
    health_state = HealthState(["clean", "train"], clock=clock)
    clock.now += 61
    health_state.note_poll("clean")
    health_state.beat()

    health = check(health_state, LIMITS)

    assert not health.healthy
    assert health.reasons == ("no poll for train was answered for 61 s (limit 60 s)",)


def test_a_worker_that_never_got_an_answer_has_its_first_minute() -> None:
    clock = Clock()
    health_state = HealthState(["clean"], clock=clock)
    health_state.beat()

    assert check(health_state, LIMITS).healthy

    clock.now += 61
    health_state.beat()
    assert not check(health_state, LIMITS).healthy


def test_a_supervisor_that_does_not_move_is_unhealthy_even_while_polls_are_answered() -> None:
    clock = Clock()
    health_state = HealthState(["clean"], clock=clock)
    clock.now += 31
    health_state.note_poll("clean")

    assert check(health_state, LIMITS).reasons == ("the supervisor has not moved for 31 s (limit 30 s)",)


def test_a_problem_of_a_part_makes_the_worker_unhealthy_until_it_is_cleared() -> None:
    health_state = HealthState(["clean"], clock=Clock())
    health_state.set_problem("result", "the result of task a was not taken for 61 s: away", "a")
    health_state.set_problem("result", "the result of task b was not taken for 90 s: away", "b")

    health_state.clear_problem("result", "a")

    assert check(health_state, LIMITS).reasons == ("the result of task b was not taken for 90 s: away",)
    health_state.clear_problem("result", "b")
    assert check(health_state, LIMITS).healthy


def test_a_secret_in_a_reason_is_hidden() -> None:
    health_state = HealthState([], clock=Clock(), mask=Masker(["hush"]))

    health_state.set_problem("worker", "the lake does not take hush")

    assert check(health_state, LIMITS).reasons == ("the lake does not take ***",)


def test_attempts_in_flight_are_part_of_the_verdict() -> None:
    health_state = HealthState(["clean"], clock=Clock())
    health_state.set_in_flight(3)

    assert check(health_state, LIMITS).in_flight == 3
