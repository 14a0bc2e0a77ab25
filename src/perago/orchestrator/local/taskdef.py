"""A TaskDef as the embedded orchestrator goes by it: its fields, read or refused by name, and the delay of a retry.

Conductor's formulas, with d = retryDelaySeconds and n = the retries so far:

    FIXED                  d
    LINEAR_BACKOFF         d * backoffScaleFactor * (n + 1)
    EXPONENTIAL_BACKOFF    d * 2^n
    then                   at most maxRetryDelaySeconds, plus 0 to backoffJitterMs at random
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.errors import OrchestratorRefused

RETRY_LOGICS = ("FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF")
TIMEOUT_POLICIES = ("RETRY", "TIME_OUT_WF", "ALERT_ONLY")
_LONGEST_DELAY = 2**31 - 1

# Conductor's field: the name here, the least value it may have.
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
    """What a TaskDef says about one task; the defaults are Conductor's."""

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
    """The rules of a TaskDef in Conductor's field names; names every field that is wrong."""
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
    """Seconds to wait before the next try; `random` gives numbers from 0 up to 1."""
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
