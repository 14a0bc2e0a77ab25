"""The attempt and the attempt fence.

An attempt is one try of one workflow step, as Conductor counts it.  The fence answers one question: is the polled
attempt still the one that Conductor has in progress?  It runs before staging, and again right before the call that
moves the branch.
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
    """One try of a workflow step, as polled from Conductor."""

    workflow_instance_id: str
    task_id: str
    reference_task_name: str
    task_name: str
    retry_count: int
    seq: int
    iteration: int
    response_timeout_seconds: float = 0
    scheduled_time: int = 0
    """The time at which the orchestrator scheduled the task, in the orchestrator's unit; 0 if unknown.

    It stays the same if the task is redelivered.  Conductor's `rerun` changes it, but keeps the task id and retry
    count.
    """
    workflow_name: str = ""
    """The name of the workflow's definition; empty if unknown, as in records of older workers."""

    @property
    def logical_task_key(self) -> str:
        """The key of the workflow step, the same for all its retries.

        It must not include seq (which Conductor renumbers on a retry), the task id, the retry count or the execution
        id.  In a loop, Conductor's reference name already includes the iteration.
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
    worker_id: str = ""
    """The worker that polled the task last; empty if it was never polled."""


def is_over(fresh: AttemptSnapshot, scheduled_time: int) -> bool:
    """Return whether the run of a task that was scheduled at `scheduled_time` has ended.

    A rerun has a different scheduled time, so it shows that the earlier run has ended.
    """
    return fresh.status in TERMINAL_STATUSES or 0 < scheduled_time != fresh.scheduled_time


def assert_current_attempt_snapshot(attempt: Attempt, fresh: AttemptSnapshot) -> None:
    """Raise `StaleAttemptError` unless `fresh` shows that this attempt is still in progress."""
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
