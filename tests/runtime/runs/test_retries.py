"""When a retry comes, in words."""

from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.runs.format import coming_retry, poll_delay


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
        # Somebody went on by hand with a task that has no retries.
        (task("SCHEDULED", 1, available=100.0, retry_limit=0), "; retry 1 now"),
        (task("IN_PROGRESS", 1, available=100.0, retry_limit=3), ""),
        (task("SCHEDULED", 1, reference="other", available=160.0), ""),
    ],
)
def test_a_failed_try_says_what_follows(following: TaskState, text: str) -> None:
    assert coming_retry(state(FAILED, following), FAILED, now=100.0) == text


def test_what_waits_says_how_long_and_what_does_not_wait_says_nothing() -> None:
    assert poll_delay(task("SCHEDULED", 1, available=142.0), now=100.0) == "in 42 s"
    assert poll_delay(task("SCHEDULED", 1, available=90.0), now=100.0) == ""
    assert poll_delay(task("COMPLETED", 1, available=142.0), now=100.0) == ""
