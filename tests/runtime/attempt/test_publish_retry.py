"""Pauses between tries: random, at least the last merge's time, and all tries within the merge time-out."""

from __future__ import annotations

import contextlib
import random

import pytest

from perago.runtime.attempt.publish_retry import PublishRetry, Timing


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def tries(timeout: float = 60, seed: int = 0) -> tuple[PublishRetry, Time]:
    clock = Time()
    return PublishRetry(timeout, Timing(clock=clock, random=random.Random(seed))), clock


def merge(tried: PublishRetry, clock: Time, seconds: float) -> None:
    with tried.timed_call():
        clock.now += seconds


@pytest.mark.parametrize("seed", range(20))
def test_a_pause_is_at_least_as_long_as_the_last_merge_and_differs(seed: int) -> None:
    (tried, clock), (other, same_clock) = tries(seed=seed), tries(seed=seed + 100)
    for took in (2.0, 0.5, 1.0):
        merge(tried, clock, took)
        merge(other, same_clock, took)
        pause, others = tried.next_pause(), other.next_pause()
        assert pause is not None
        assert others is not None
        assert pause >= took
        assert pause != others
    assert tried.count == 3


def test_a_merge_that_took_no_time_is_paused_after_all_the_same() -> None:
    tried, clock = tries()
    merge(tried, clock, 0)
    assert (tried.next_pause() or 0) > 0


def test_no_retry_starts_that_could_not_end_in_time() -> None:
    tried, clock = tries(timeout=10)
    assert tried.seconds_left == 10
    merge(tried, clock, 4)
    assert tried.seconds_left == 6
    clock.now = 5
    assert tried.next_pause() is None
    clock.now = 11
    assert (tried.seconds_left, tried.next_pause()) == (0, None)


def test_the_time_of_a_failing_call_counts() -> None:
    tried, clock = tries(timeout=10)
    with contextlib.suppress(ValueError), tried.timed_call():
        clock.now += 7
        raise ValueError
    assert (tried.count, tried.next_pause()) == (1, None)
