"""Valid controls; test_diagnostics.py has the invalid ones."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskDefinitionError,
    TimeoutPolicy,
)

BUDGET = PublishBudget(
    observed_merge_p99_seconds=20,
    safety_margin_seconds=10,
    lakefs_merge_timeout_seconds=30,
    conductor_completion_timeout_seconds=15,
    worker_shutdown_grace_seconds=40,
    heartbeat_interval_seconds=5,
)


def test_the_defaults_are_those_of_perago_061() -> None:
    controls = TaskControls()

    assert controls.retry.model_dump() == {
        "count": 3,
        "logic": "FIXED",
        "delay_seconds": 60,
        "max_delay_seconds": 0,
        "jitter_ms": 0,
    }
    assert controls.timeout.model_dump() == {
        "policy": "TIME_OUT_WF",
        "seconds": 0,
        "response_seconds": 600,
        "poll_seconds": 0,
        "total_seconds": 0,
    }
    assert set(controls.limits.model_dump().values()) == {None}
    assert controls.publish_budget is None


def test_a_budget_needs_the_sum_of_its_last_four() -> None:
    assert BUDGET.response_timeout_seconds == 30 + 15 + 40 + 5


def test_a_budget_never_overrides_the_response_time_out() -> None:
    controls = TaskControls(timeout=TimeoutPolicy(response_seconds=7), publish_budget=BUDGET)

    assert controls.response_timeout_seconds == 7


@pytest.mark.parametrize(
    "policy",
    [
        {"response_seconds": 60, "seconds": 60, "total_seconds": 60},
        {"response_seconds": 60, "seconds": 0},
        {"total_seconds": 300},
    ],
    ids=["all equal", "no time-out", "a total below the default response time-out"],
)
def test_time_outs_that_conductor_takes_are_right(policy: dict[str, int]) -> None:
    assert TimeoutPolicy.model_validate(policy).model_dump(include=policy.keys()) == policy


def test_conductor_sets_no_upper_bound_to_retries() -> None:
    assert RetryPolicy(count=1000).count == 1000


def test_a_rate_limit_is_a_pair() -> None:
    limits = ExecutionLimits(rate_limit_per_frequency=5, rate_limit_frequency_in_seconds=60)

    assert (limits.rate_limit_per_frequency, limits.rate_limit_frequency_in_seconds) == (5, 60)


def test_controls_are_values() -> None:
    assert TaskControls(retry=RetryPolicy(count=1)) == TaskControls(retry=RetryPolicy(count=1))
    assert hash(RetryPolicy(count=1)) == hash(RetryPolicy(count=1))
    with pytest.raises(ValidationError, match="frozen"):
        RetryPolicy().count = 5  # type: ignore[misc]


def test_a_policy_may_be_written_as_a_dict_and_is_held_to_the_same_rules() -> None:
    assert TaskControls(retry={"count": 2}).retry == RetryPolicy(count=2)  # type: ignore[arg-type]
    with pytest.raises(TaskDefinitionError, match=r"RetryPolicy\.count = -2: must be 0 or more"):
        TaskControls(retry={"count": -2})  # type: ignore[arg-type]


class TestShortForms:
    def test_a_number_is_the_limit_of_an_attempt(self) -> None:
        assert TaskControls(timeout=3600).timeout == TimeoutPolicy(seconds=3600)

    def test_a_wrong_number_is_named_as_the_policy_names_it(self) -> None:
        with pytest.raises(TaskDefinitionError, match=r"TimeoutPolicy.seconds = -1: must be 0 or more"):
            TaskControls(timeout=-1)

    @pytest.mark.parametrize(("seconds", "lease"), [(0, 600), (300, 300), (600, 600), (3600, 600)])
    def test_the_default_lease_follows_a_shorter_limit(self, seconds: int, lease: int) -> None:
        assert TimeoutPolicy(seconds=seconds).response_seconds == lease

    def test_a_lease_of_the_author_is_still_checked(self) -> None:
        with pytest.raises(TaskDefinitionError, match="must not be above seconds"):
            TimeoutPolicy(seconds=300, response_seconds=301)

    @pytest.mark.parametrize(("observed", "merge"), [(3, 60), (55, 60), (90, 95)])
    def test_a_budget_needs_only_the_observed_time(self, observed: int, merge: int) -> None:
        assert PublishBudget(observed_merge_p99_seconds=observed).lakefs_merge_timeout_seconds == merge


def test_a_limit_of_the_wrong_type_is_told_once_for_the_field_that_has_it() -> None:
    with pytest.raises(TaskDefinitionError) as told:
        TimeoutPolicy(seconds=True)
    assert str(told.value).count("must be a whole number") == 1
    assert "TimeoutPolicy.seconds = True" in str(told.value)
