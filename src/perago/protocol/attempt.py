"""The attempt and the attempt fence.

An attempt is one Conductor try of one workflow step.  The fence asks one question: is the polled attempt still the one that
Conductor has in progress?  It runs before staging, and again right before the call that moves the branch.
"""

from __future__ import annotations

from dataclasses import dataclass

from perago.errors import StaleAttemptError

IN_PROGRESS = "IN_PROGRESS"
TERMINAL_STATUSES = frozenset(
    {
        "COMPLETED",
        "COMPLETED_WITH_ERRORS",
        "FAILED",
        "FAILED_WITH_TERMINAL_ERROR",
        "CANCELED",
        "TIMED_OUT",
        "SKIPPED",
    }
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One Conductor try, as it was polled."""

    workflow_instance_id: str
    task_id: str
    reference_task_name: str
    task_name: str
    retry_count: int
    seq: int
    iteration: int
    response_timeout_seconds: float = 0
    scheduled_time: int = 0
    """The time the orchestrator scheduled the task, in the orchestrator's unit; 0 if unknown.

    A redelivered task keeps it; Conductor's `rerun`, which keeps task id and retry count, changes it.
    """

    @property
    def logical_task_key(self) -> str:
        """The workflow step, the same for all its retries.

        Never seq (Conductor renumbers it on retry), task id, retry count or execution id.  A loop's iteration
        is already part of the reference name that Conductor gives.
        """
        return f"{self.workflow_instance_id}/{self.reference_task_name}"


@dataclass(frozen=True, slots=True)
class AttemptSnapshot:
    """The orchestrator's current view of a task."""

    status: str
    workflow_instance_id: str
    task_id: str
    retry_count: int
    scheduled_time: int = 0


def is_over(fresh: AttemptSnapshot, scheduled_time: int) -> bool:
    """Return whether the run of a task scheduled at that time has ended; a rerun has another scheduled time."""
    return fresh.status in TERMINAL_STATUSES or 0 < scheduled_time != fresh.scheduled_time


def assert_current_attempt_snapshot(attempt: Attempt, fresh: AttemptSnapshot) -> None:
    """Raise `StaleAttemptError` unless `fresh` is still this attempt, in progress."""
    expected = {
        "status": IN_PROGRESS,
        "workflow_instance_id": attempt.workflow_instance_id,
        "task_id": attempt.task_id,
        "retry_count": attempt.retry_count,
        "scheduled_time": attempt.scheduled_time,
    }
    wrong = [
        f"{name} is {getattr(fresh, name)!r}, expected {value!r}"
        for name, value in expected.items()
        if getattr(fresh, name) != value
    ]
    if wrong:
        raise StaleAttemptError(
            f"task {attempt.task_id} is no longer Conductor's current attempt: {'; '.join(wrong)}"
        )
