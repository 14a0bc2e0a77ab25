"""When a task is out of time, and what that ends."""

from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.local.state import Task
from perago.orchestrator.local.taskdef import TaskRules, deadline, timed_out, total_time_is_up


def a_task(status: str, **fields: Any) -> Task:
    times = {"scheduled": 100, "first_scheduled": 100, "available": 100, "updated": 100, **fields}
    return Task("t1", "w1", "ref", "clean", "clean", status, **times)


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
