"""When a task is out of time.

A task can run out of time in four ways.  The response time-out always ends the attempt as TIMED_OUT; the
other three do what `timeoutPolicy` says, and under ALERT_ONLY they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perago.orchestrator.local.state import Task
from perago.orchestrator.local.taskdef import TaskRules


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A task that is out of time; `ends_workflow` where its policy says so."""

    reason: str
    ends_workflow: bool = False


def deadline(task: Task, rules: TaskRules) -> float | None:
    """When the task next runs out of time if nothing happens; None if it never does."""
    return min((due for due, _ in _limits(task, rules)), default=None)


def timed_out(task: Task, rules: TaskRules, now: float) -> TimeOut | None:
    """The first way in which the task is out of time now, in Conductor's order."""
    for due, describe in _limits(task, rules):
        if now >= due:
            return describe(now)
    return None


def total_time_is_up(task: Task, rules: TaskRules, now: float) -> bool:
    """Whether the budget over all attempts of the step is used up, so that no retry may follow."""
    total = rules.total_timeout_seconds
    return total > 0 and now - task.first_scheduled >= total


def _limits(task: Task, rules: TaskRules) -> Iterator[tuple[float, Callable[[float], TimeOut]]]:
    policy = rules.timeout_policy
    ends = policy == "TIME_OUT_WF"
    if policy != "ALERT_ONLY":
        if rules.total_timeout_seconds:

            def total(now: float) -> TimeOut:
                text = (
                    f"Task {task.name}/{task.id} exceeded total timeout of {rules.total_timeout_seconds} seconds "
                    f"(elapsed {int(now - task.first_scheduled)} seconds across all attempts including retry "
                    f"delays). Timeout policy: {policy}"
                )
                return TimeOut(text, ends)

            yield task.first_scheduled + rules.total_timeout_seconds, total
        if rules.timeout_seconds and task.started:
            since = task.started

            def own(now: float) -> TimeOut:
                text = _policy_text("Task timed out", "Timeout", now - since, rules.timeout_seconds, policy)
                return TimeOut(text, ends)

            yield since + rules.timeout_seconds, own
        if rules.poll_timeout_seconds and task.status == "SCHEDULED":

            def unpolled(now: float) -> TimeOut:
                waited = now - task.available
                limit = rules.poll_timeout_seconds
                return TimeOut(
                    _policy_text("Task poll timed out", "Poll timeout", waited, limit, policy), ends
                )

            yield task.available + rules.poll_timeout_seconds, unpolled
    if task.status == "IN_PROGRESS":

        def silent(now: float) -> TimeOut:
            return TimeOut(
                f"responseTimeout: {rules.response_timeout_seconds} exceeded for the taskId: {task.id} "
                f"with Task Definition: {task.name}"
            )

        yield task.updated + rules.response_timeout_seconds, silent


def _policy_text(what: str, which: str, elapsed: float, limit: int, policy: str) -> str:
    return (
        f"{what} after {int(elapsed)} seconds. {which} configured as {limit} seconds. "
        f"Timeout policy configured to {policy}"
    )
