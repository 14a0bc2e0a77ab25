"""A TaskDef's numbers: delays, time-outs, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.retries import (
    TaskRules,
    deadline,
    parse_taskdef,
    retry_delay,
    timed_out,
    total_time_is_up,
)
from perago.orchestrator.local.state import Task


def a_task(status: str, **fields: Any) -> Task:
    times = {"scheduled": 100, "first_scheduled": 100, "available": 100, "updated": 100, **fields}
    return Task("t1", "w1", "ref", "clean", "clean", status, **times)


@pytest.mark.parametrize(
    ("fields", "delays"),
    [
        ({"retryLogic": "FIXED", "retryDelaySeconds": 5}, [5, 5, 5, 5]),
        ({"retryLogic": "LINEAR_BACKOFF", "retryDelaySeconds": 5}, [5, 10, 15, 20]),
        (
            {"retryLogic": "LINEAR_BACKOFF", "retryDelaySeconds": 5, "backoffScaleFactor": 3},
            [15, 30, 45, 60],
        ),
        ({"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5}, [5, 10, 20, 40]),
        (
            {"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5, "backoffScaleFactor": 3},
            [5, 10, 20, 40],
        ),
        (
            {"retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 5, "maxRetryDelaySeconds": 12},
            [5, 10, 12, 12],
        ),
        ({"retryLogic": "FIXED", "retryDelaySeconds": 5, "maxRetryDelaySeconds": 3}, [3, 3, 3, 3]),
        ({"retryDelaySeconds": 0, "retryLogic": "EXPONENTIAL_BACKOFF"}, [0, 0, 0, 0]),
        ({}, [60, 60, 60, 60]),
    ],
)
def test_the_delay_follows_the_retry_logic(fields: dict[str, Any], delays: list[int]) -> None:
    rules = parse_taskdef({"name": "clean", **fields})
    assert [retry_delay(rules, retries, lambda: 0.5) for retries in range(4)] == delays


def test_jitter_is_added_on_top_at_random() -> None:
    rules = parse_taskdef({"name": "clean", "retryDelaySeconds": 2, "backoffJitterMs": 500})
    assert retry_delay(rules, 0, lambda: 0.0) == 2
    assert retry_delay(rules, 0, lambda: 0.5) == 2.25


def test_a_delay_does_not_grow_without_end() -> None:
    rules = parse_taskdef({"name": "clean", "retryDelaySeconds": 60, "retryLogic": "EXPONENTIAL_BACKOFF"})
    assert retry_delay(rules, 5000, lambda: 0.0) == 2**31 - 1


def test_a_silent_task_runs_out_of_its_lease() -> None:
    rules = TaskRules("clean", response_timeout_seconds=10)
    task = a_task("IN_PROGRESS", started=105, updated=120)
    assert deadline(task, rules) == 130
    assert timed_out(task, rules, 129.9) is None
    found = timed_out(task, rules, 130)
    assert found is not None
    assert not found.ends_workflow
    assert found.reason == "responseTimeout: 10 exceeded for the taskId: t1 with Task Definition: clean"


def test_a_task_that_waits_has_no_lease() -> None:
    assert deadline(a_task("SCHEDULED"), TaskRules("clean", response_timeout_seconds=10)) is None


@pytest.mark.parametrize(("policy", "ends"), [("RETRY", False), ("TIME_OUT_WF", True)])
def test_the_tasks_own_time_counts_from_its_start(policy: str, ends: bool) -> None:
    rules = TaskRules("clean", timeout_seconds=30, timeout_policy=policy, response_timeout_seconds=30)
    task = a_task("IN_PROGRESS", started=105, updated=120)
    assert deadline(task, rules) == 135
    found = timed_out(task, rules, 137.5)
    assert found is not None
    assert found.ends_workflow is ends
    assert found.reason == (
        "Task timed out after 32 seconds. Timeout configured as 30 seconds. "
        f"Timeout policy configured to {policy}"
    )


def test_the_total_time_counts_from_the_first_try() -> None:
    rules = TaskRules("clean", total_timeout_seconds=60, timeout_policy="RETRY")
    task = a_task("SCHEDULED", first_scheduled=50, available=200)
    assert deadline(task, rules) == 110
    assert not total_time_is_up(task, rules, 109.9)
    assert total_time_is_up(task, rules, 110)
    found = timed_out(task, rules, 111)
    assert found is not None
    assert "exceeded total timeout of 60 seconds (elapsed 61 seconds" in found.reason


def test_a_task_nobody_polls_runs_out_of_time_once_it_is_available() -> None:
    rules = TaskRules("clean", poll_timeout_seconds=5, timeout_policy="RETRY")
    assert deadline(a_task("SCHEDULED", available=150), rules) == 155
    assert deadline(a_task("IN_PROGRESS", started=100), rules) == 100 + 3600
    found = timed_out(a_task("SCHEDULED", available=150), rules, 156)
    assert found is not None
    assert found.reason.startswith(
        "Task poll timed out after 6 seconds. Poll timeout configured as 5 seconds."
    )


def test_alert_only_leaves_nothing_but_the_lease() -> None:
    rules = TaskRules(
        "clean",
        timeout_policy="ALERT_ONLY",
        timeout_seconds=5,
        total_timeout_seconds=5,
        poll_timeout_seconds=5,
        response_timeout_seconds=60,
    )
    assert deadline(a_task("SCHEDULED"), rules) is None
    assert deadline(a_task("IN_PROGRESS", started=100), rules) == 160


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"retryCount": -1}, "retryCount is -1"),
        ({"retryCount": "3"}, "retryCount is '3'"),
        ({"retryCount": True}, "retryCount is True"),
        ({"retryLogic": "RANDOM"}, "retryLogic is 'RANDOM', expected one of FIXED"),
        ({"timeoutPolicy": "STOP"}, "timeoutPolicy is 'STOP'"),
        ({"responseTimeoutSeconds": 0}, "responseTimeoutSeconds is 0"),
        ({"timeoutSeconds": 10, "responseTimeoutSeconds": 20}, "must not be more than timeoutSeconds 10"),
        (
            {"timeoutSeconds": 10, "responseTimeoutSeconds": 5, "totalTimeoutSeconds": 9},
            "must not be more than totalTimeoutSeconds 9",
        ),
        ({"inputTemplate": [1]}, "inputTemplate is not an object"),
        ({"name": ""}, "needs a name"),
    ],
)
def test_a_wrong_taskdef_is_refused_and_says_which_field(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(OrchestratorRefused, match=what):
        parse_taskdef({"name": "clean", **fields})


def test_all_wrong_fields_are_named_at_once() -> None:
    with pytest.raises(OrchestratorRefused, match=r"retryCount.*retryLogic"):
        parse_taskdef({"name": "clean", "retryCount": -1, "retryLogic": "X"})
