from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, CheckRecord
from perago.runtime.runs.format import coming_retry, duration, poll_delay, record_lines, size


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (61, "1 min 01 s"),
        (3600, "1 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_a_duration_is_as_fine_as_people_want_it(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 * 1024**5, "5120.0 TB")]
)
def test_bytes_have_the_unit_that_fits(count: int, words: str) -> None:
    assert size(count) == words


def test_a_record_says_which_checks_did_not_pass_and_how_many_there_was_no_room_for() -> None:
    checks = [CheckRecord("pre", "a", "3 files"), CheckRecord("post", "b", "no rows", passed=False)]
    record = AttemptRecord("e", "FAILED", checks=checks, left_out=4, saved=10)
    assert list(record_lines(record)) == [
        "check pre a: 3 files",
        "check post b: no rows (did not pass)",
        "4 more checks are not recorded",
        "bytes: 0 B downloaded, 0 B uploaded, 10 B not moved",
    ]


def test_a_record_that_knows_nothing_says_nothing() -> None:
    assert list(record_lines(AttemptRecord("e", "FAILED"))) == []


def task(status: str, retry_count: int, **fields: Any) -> TaskState:
    return TaskState(
        reference=fields.pop("reference", "clean"),
        task_name="clean",
        task_type="SIMPLE",
        task_id=f"id-{retry_count}",
        status=status,
        retry_count=retry_count,
        iteration=0,
        seq=retry_count + 1,
        **fields,
    )


def state(*tasks: TaskState) -> WorkflowState:
    return WorkflowState("flow", "RUNNING", None, {}, tasks)


FAILED = task("FAILED", 0)


@pytest.mark.parametrize(
    ("following", "text"),
    [
        (task("SCHEDULED", 1, available=160.0, retry_limit=3), "; retry 1 of 3 in 60 s"),
        (task("SCHEDULED", 1, available=100.0, retry_limit=3), "; retry 1 of 3 now"),
        (task("SCHEDULED", 1, available=160.0), "; retry 1 in 60 s"),
        # A task without retries that was resumed by hand.
        (task("SCHEDULED", 1, available=100.0, retry_limit=0), "; retry 1 now"),
        (task("IN_PROGRESS", 1, available=100.0, retry_limit=3), ""),
        (task("SCHEDULED", 1, reference="other", available=160.0), ""),
    ],
)
def test_a_failed_try_says_what_follows(following: TaskState, text: str) -> None:
    assert coming_retry(state(FAILED, following), FAILED, now=100.0) == text


def test_a_waiting_step_shows_its_delay_and_others_show_nothing() -> None:
    assert poll_delay(task("SCHEDULED", 1, available=142.0), now=100.0) == "in 42 s"
    assert poll_delay(task("SCHEDULED", 1, available=90.0), now=100.0) == ""
    assert poll_delay(task("COMPLETED", 1, available=142.0), now=100.0) == ""
