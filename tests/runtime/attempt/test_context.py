from __future__ import annotations

import pytest

from perago.errors import OrchestratorRefused, OrchestratorUnavailable
from perago.runtime.attempt.context import LONGEST_WAIT_SECONDS, ask_until_answered
from tests.support.worlds.clock import Clock


def test_an_orchestrator_that_is_away_is_asked_until_it_answers() -> None:
    clock, asked = Clock(), []

    def ask() -> str:
        asked.append(clock())
        if len(asked) < 5:
            raise OrchestratorUnavailable("away")
        return "here"

    assert ask_until_answered(ask, clock=clock, sleep=clock.sleep) == "here"
    assert len(set(asked)) == 5


def test_an_orchestrator_that_stays_unavailable_is_given_up_in_the_end() -> None:
    clock = Clock()
    began = clock()

    def ask() -> str:
        raise OrchestratorUnavailable("away")

    with pytest.raises(OrchestratorUnavailable):
        ask_until_answered(ask, clock=clock, sleep=clock.sleep)
    assert clock() - began >= LONGEST_WAIT_SECONDS


def test_a_refusal_is_an_answer() -> None:
    def ask() -> str:
        raise OrchestratorRefused("no")

    with pytest.raises(OrchestratorRefused):
        ask_until_answered(ask)
