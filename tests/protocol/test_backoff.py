from __future__ import annotations

import math
from random import Random

import pytest

from perago.protocol.backoff import Backoff


def test_a_delay_doubles_with_each_failure_up_to_the_longest() -> None:
    backoff = Backoff(1.0, longest=30.0)

    assert [backoff.delay(failures) for failures in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]


def test_the_factor_says_how_fast_a_delay_grows() -> None:
    assert [Backoff(2.0, factor=3.0).delay(failures) for failures in (1, 2, 3)] == [2, 6, 18]


def test_a_factor_of_one_keeps_the_delay() -> None:
    assert [Backoff(5.0, factor=1.0).delay(failures) for failures in (1, 2, 3)] == [5, 5, 5]


@pytest.mark.parametrize("longest", [300.0, math.inf])
def test_any_number_of_failures_has_a_delay(longest: float) -> None:
    assert Backoff(0.1, longest=longest).delay(100_000) == longest


def test_jitter_is_a_part_of_the_bounded_delay() -> None:
    backoff = Backoff(0.2, longest=5.0, jitter=(0.5, 1.0))

    assert backoff.delay(3, Random(7)) == 0.8 * Random(7).uniform(0.5, 1.0)
    assert backoff.delay(99, Random(7)) == 5.0 * Random(7).uniform(0.5, 1.0)


def test_the_same_random_numbers_give_the_same_delays() -> None:
    backoff, one, other = Backoff(0.1, longest=5.0, jitter=(0.0, 1.0)), Random(1), Random(1)

    assert [backoff.delay(n, one) for n in range(1, 9)] == [backoff.delay(n, other) for n in range(1, 9)]


def test_without_jitter_no_random_number_is_drawn() -> None:
    random = Random(1)
    before = random.getstate()

    Backoff(1.0).delay(3, random)

    assert random.getstate() == before


def test_without_a_generator_a_delay_is_still_within_its_jitter() -> None:
    delays = [Backoff(1.0, jitter=(0.5, 1.0)).delay(1) for _ in range(100)]

    assert all(0.5 <= delay <= 1.0 for delay in delays)
    assert len(set(delays)) > 1
