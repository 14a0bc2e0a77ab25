"""Whom an attempt asks before it revokes: the orchestrator, about itself and about those that may be later."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable, StaleAttemptError
from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.names import InternalBranch
from perago.runtime.attempt.context import ask_until_answered
from perago.runtime.attempt.revoke import ask_for_current

ATTEMPT = Attempt("wf", "mine", "step", "t", retry_count=1, seq=2, iteration=0, scheduled_time=1000)
OTHER = InternalBranch("staging", "wf", "step", "other", scheduled_time=2000)


@dataclass
class Tasks:
    """An orchestrator with scripted answers about tasks; the last one stays."""

    said: dict[str, list[str]]
    scheduled: dict[str, int] = field(default_factory=lambda: {"mine": 1000, "other": 2000})
    asked: list[str] = field(default_factory=list)

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        self.asked.append(attempt.task_id)
        if attempt.task_id not in self.said:
            raise OrchestratorNotFound(attempt.task_id)
        answers = self.said[attempt.task_id]
        status = answers.pop(0) if len(answers) > 1 else answers[0]
        return AttemptSnapshot(status, "wf", attempt.task_id, 1, self.scheduled[attempt.task_id])


def test_an_attempt_that_is_not_current_is_stale_and_asks_about_nobody_else() -> None:
    tasks = Tasks({"mine": ["TIMED_OUT"], "other": ["IN_PROGRESS"]})
    with pytest.raises(StaleAttemptError):
        ask_for_current(tasks, ATTEMPT, [OTHER])
    assert tasks.asked == ["mine"]


@pytest.mark.parametrize("status", ["TIMED_OUT", "FAILED", "CANCELED", "COMPLETED"])
def test_a_later_task_that_is_over_is_a_dead_attempts(status: str) -> None:
    tasks = Tasks({"mine": ["IN_PROGRESS"], "other": [status]})
    assert ask_for_current(tasks, ATTEMPT, [OTHER]).task_id == "mine"
    assert tasks.asked == ["mine", "other"]


def test_a_later_task_that_nobody_knows_is_over() -> None:
    assert ask_for_current(Tasks({"mine": ["IN_PROGRESS"]}), ATTEMPT, [OTHER]).task_id == "mine"


def test_a_task_whose_id_a_name_cannot_hold_is_not_asked_for() -> None:
    tasks = Tasks({"mine": ["IN_PROGRESS"]})
    ask_for_current(tasks, ATTEMPT, [replace(OTHER, task_id="_other-x0123456789")])
    assert tasks.asked == ["mine"]


def test_the_earlier_run_of_a_task_that_was_rerun_is_over() -> None:
    tasks = Tasks({"mine": ["IN_PROGRESS"], "other": ["IN_PROGRESS"]}, {"mine": 1000, "other": 3000})
    assert ask_for_current(tasks, ATTEMPT, [OTHER]).task_id == "mine"


@pytest.mark.parametrize(
    ("said", "stale"),
    [
        ({"mine": ["IN_PROGRESS"], "other": ["IN_PROGRESS", "SCHEDULED", "TIMED_OUT"]}, False),
        ({"mine": ["IN_PROGRESS", "TIMED_OUT"], "other": ["SCHEDULED"]}, True),
    ],
    ids=["the other is closed", "this one is closed"],
)
def test_the_orchestrator_is_asked_until_one_of_two_open_attempts_is_closed(
    said: dict[str, list[str]], stale: bool
) -> None:
    tasks, pauses = Tasks(said), []
    with pytest.raises(OrchestratorUnavailable, match="other of the same step is open beside task mine"):
        ask_for_current(tasks, ATTEMPT, [OTHER])
    ask = partial(ask_for_current, tasks, ATTEMPT, [OTHER])
    if stale:
        with pytest.raises(StaleAttemptError):
            ask_until_answered(ask, sleep=pauses.append)
    else:
        assert ask_until_answered(ask, sleep=pauses.append).task_id == "mine"
        assert len(pauses) == 1
