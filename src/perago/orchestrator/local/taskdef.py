"""The rules in a TaskDef: its parsed fields, the delay before a retry, and timeouts.

Conductor's formulas for the delay, with d = retryDelaySeconds and n = the number of retries so far:

    FIXED                  d
    LINEAR_BACKOFF         d * backoffScaleFactor * (n + 1)
    EXPONENTIAL_BACKOFF    d * 2^n
    then                   at most maxRetryDelaySeconds, plus 0 to backoffJitterMs at random

A task has four timeouts.  The response timeout always ends the attempt as TIMED_OUT.  The other three follow
`timeoutPolicy`, and do nothing if it is ALERT_ONLY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.errors import OrchestratorRefused

if TYPE_CHECKING:
    from perago.orchestrator.local.state import Task


RETRY_LOGICS = ("FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF")
TIMEOUT_POLICIES = ("RETRY", "TIME_OUT_WF", "ALERT_ONLY")
_LONGEST_DELAY = 2**31 - 1

# Conductor's field name: (our field name, minimum).
_NUMBERS = {
    "retryCount": ("retry_count", 0),
    "retryDelaySeconds": ("retry_delay_seconds", 0),
    "backoffScaleFactor": ("backoff_scale_factor", 1),
    "maxRetryDelaySeconds": ("max_retry_delay_seconds", 0),
    "backoffJitterMs": ("backoff_jitter_ms", 0),
    "responseTimeoutSeconds": ("response_timeout_seconds", 1),
    "timeoutSeconds": ("timeout_seconds", 0),
    "totalTimeoutSeconds": ("total_timeout_seconds", 0),
    "pollTimeoutSeconds": ("poll_timeout_seconds", 0),
    "concurrentExecLimit": ("concurrent_exec_limit", 0),
    "rateLimitPerFrequency": ("rate_limit_per_frequency", 0),
    "rateLimitFrequencyInSeconds": ("rate_limit_frequency_in_seconds", 0),
}
_CHOICES = {
    "retryLogic": ("retry_logic", RETRY_LOGICS),
    "timeoutPolicy": ("timeout_policy", TIMEOUT_POLICIES),
}


@dataclass(frozen=True, slots=True)
class TaskRules:
    """The settings in one TaskDef.  The defaults are Conductor's."""

    name: str
    retry_count: int = 3
    retry_logic: str = "FIXED"
    retry_delay_seconds: int = 60
    backoff_scale_factor: int = 1
    max_retry_delay_seconds: int = 0
    backoff_jitter_ms: int = 0
    response_timeout_seconds: int = 3600
    timeout_seconds: int = 0
    timeout_policy: str = "TIME_OUT_WF"
    total_timeout_seconds: int = 0
    poll_timeout_seconds: int = 0
    concurrent_exec_limit: int = 0
    rate_limit_per_frequency: int = 0
    rate_limit_frequency_in_seconds: int = 1
    input_template: Mapping[str, Any] = field(default_factory=dict)


def parse_taskdef(definition: Mapping[str, Any]) -> TaskRules:
    """Parse a TaskDef with Conductor's field names.  Raises `OrchestratorRefused`, listing every invalid field."""
    name = definition.get("name")
    if not isinstance(name, str) or not name:
        raise OrchestratorRefused("a TaskDef needs a name")
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for key, (here, least) in _NUMBERS.items():
        value = definition.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            wrong.append(f"{key} is {value!r}, expected a whole number of at least {least}")
        values[here] = value
    for key, (here, allowed) in _CHOICES.items():
        value = definition.get(key)
        if value is None:
            continue
        if value not in allowed:
            wrong.append(f"{key} is {value!r}, expected one of {', '.join(allowed)}")
        values[here] = value
    template = definition.get("inputTemplate") or {}
    if not isinstance(template, Mapping):
        wrong.append("inputTemplate is not an object")
    rules = TaskRules(name, **values, input_template=template)
    if not wrong:
        wrong.extend(_contradictions(rules))
    if wrong:
        raise OrchestratorRefused(f"TaskDef {name}: {'; '.join(wrong)}")
    return rules


def retry_delay(rules: TaskRules, retries_so_far: int, random: Callable[[], float]) -> float:
    """Return the seconds to wait before the next retry.  `random` returns numbers from 0 to 1."""
    delay = rules.retry_delay_seconds
    if rules.retry_logic == "LINEAR_BACKOFF":
        delay *= rules.backoff_scale_factor * (retries_so_far + 1)
    elif rules.retry_logic == "EXPONENTIAL_BACKOFF":
        delay *= 2**retries_so_far
    delay = min(delay, rules.max_retry_delay_seconds or _LONGEST_DELAY, _LONGEST_DELAY)
    return delay + random() * rules.backoff_jitter_ms / 1000


def _contradictions(rules: TaskRules) -> Iterator[str]:
    if 0 < rules.timeout_seconds < rules.response_timeout_seconds:
        yield (
            f"responseTimeoutSeconds {rules.response_timeout_seconds} must not be more than "
            f"timeoutSeconds {rules.timeout_seconds}"
        )
    if 0 < rules.total_timeout_seconds < rules.timeout_seconds:
        yield (
            f"timeoutSeconds {rules.timeout_seconds} must not be more than "
            f"totalTimeoutSeconds {rules.total_timeout_seconds}"
        )


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A timeout that has expired for a task.  `ends_workflow` depends on the TaskDef's policy."""

    reason: str
    ends_workflow: bool = False


def deadline(task: Task, rules: TaskRules) -> float | None:
    """Return the time at which the task will time out unless something else happens first, or None if it never will."""
    return min((due for due, _ in _limits(task, rules)), default=None)


def timed_out(task: Task, rules: TaskRules, now: float) -> TimeOut | None:
    """Return the first timeout that is due, in the order that Conductor uses, or None if none is due."""
    for due, describe in _limits(task, rules):
        if now >= due:
            return describe(now)
    return None


def total_time_is_up(task: Task, rules: TaskRules, now: float) -> bool:
    """Return whether the total timeout for all attempts of the step has expired, so that no retry may follow."""
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
