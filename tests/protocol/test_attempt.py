"""The attempt fence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.errors import StaleAttemptError
from perago.protocol.attempt import Attempt, AttemptSnapshot, assert_current_attempt_snapshot, is_over

ATTEMPT = Attempt("wf-1", "task-1", "clean", "clean_events", retry_count=2, seq=3, iteration=0)
FRESH = AttemptSnapshot("IN_PROGRESS", "wf-1", "task-1", 2)


def test_an_attempt_that_is_still_in_progress_passes() -> None:
    assert_current_attempt_snapshot(ATTEMPT, FRESH)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "TIMED_OUT"),
        ("status", "COMPLETED"),
        ("status", "SCHEDULED"),
        ("workflow_instance_id", "wf-2"),
        ("task_id", "task-2"),
        ("retry_count", 3),
        ("scheduled_time", 1_700_000_000_000),
    ],
)
def test_any_other_field_makes_it_stale_and_is_named(field: str, value: object) -> None:
    with pytest.raises(StaleAttemptError, match=rf"task-1 is no longer.*{field} is {value!r}"):
        assert_current_attempt_snapshot(ATTEMPT, replace(FRESH, **{field: value}))


def test_the_logical_key_is_the_same_for_every_retry_of_a_step() -> None:
    retried = replace(ATTEMPT, task_id="task-9", retry_count=3, seq=8)
    assert retried.logical_task_key == ATTEMPT.logical_task_key == "wf-1/clean"
    assert replace(ATTEMPT, reference_task_name="clean__2").logical_task_key == "wf-1/clean__2"


@pytest.mark.parametrize(
    ("status", "scheduled", "over"),
    [
        ("TIMED_OUT", 1000, True),
        ("IN_PROGRESS", 1000, False),
        ("SCHEDULED", 1000, False),
        ("IN_PROGRESS", 2000, True),
        ("IN_PROGRESS", 0, False),
    ],
    ids=["terminal", "in progress", "scheduled", "rerun since", "the name tells no time"],
)
def test_a_run_of_a_task_is_over_when_it_has_ended_or_was_rerun(
    status: str, scheduled: int, over: bool
) -> None:
    assert is_over(AttemptSnapshot(status, "wf", "task", 0, 1000), scheduled) is over
