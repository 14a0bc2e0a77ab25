"""The controls of a task: retries, timeouts, limits, and the budget of a publication.

Field names are those of perago 0.6.1.  The rules include Conductor's own, so that a declaration that loads can be
registered, and also refuse values that Conductor would wrongly accept (negative delays and limits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from perago.declare.diagnostics import BrokenRule
from perago.declare.spec_base import Positive, SpecBase, Whole

RetryLogic = Literal["FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"]
TimeoutAction = Literal["RETRY", "TIME_OUT_WF", "ALERT_ONLY"]

DEFAULT_LEASE_SECONDS = 600
DEFAULT_MERGE_TIMEOUT_SECONDS = 60
"""The merge timeout of a task without a budget, too."""


class RetryPolicy(SpecBase):
    """Retries of a failed task: their number and the delays between them."""

    count: Whole = 3
    """The number of retries after a failed attempt; 0 means none."""

    logic: RetryLogic = "FIXED"
    """The growth of the delay: `FIXED`, `LINEAR_BACKOFF` or `EXPONENTIAL_BACKOFF`."""

    delay_seconds: Whole = 60
    """Seconds between a failure and the next try; with a backoff, before the first retry."""

    max_delay_seconds: Whole = 0
    """The longest delay that a backoff may reach, in seconds; 0 means no bound."""

    jitter_ms: Whole = 0
    """The upper bound of a random number of milliseconds added to each delay, so that tasks do not all retry at once."""


class TimeoutPolicy(SpecBase):
    """Time limits of a task, and what Conductor does when one has passed; 0 means no limit, except for the response.

    `response_seconds` is the lease: Perago extends it while the attempt lives.
    """

    policy: TimeoutAction = "TIME_OUT_WF"
    """Conductor's reaction when `seconds` have passed: `RETRY`, end the workflow (`TIME_OUT_WF`), or only raise an alert
    (`ALERT_ONLY`, which ends nothing)."""

    seconds: Whole = 0
    """The longest that one attempt may take, in seconds; 0 means no limit, so a body that hangs keeps its slot."""

    response_seconds: Positive = DEFAULT_LEASE_SECONDS
    """The lease in seconds: a worker that is silent for longer loses the attempt. Perago extends it while the attempt runs.
    The default is 600, or `seconds` if that is shorter."""

    poll_seconds: Whole = 0
    """The longest that the task may wait for a worker, in seconds; 0 means no limit."""

    total_seconds: Whole = 0
    """The longest that all attempts together may take, in seconds; 0 means no limit."""

    @model_validator(mode="before")
    @classmethod
    def _default_lease(cls, values: Any) -> Any:
        """Shorten the default lease to `seconds`: Conductor refuses a longer one."""
        if not isinstance(values, dict) or "response_seconds" in values:
            return values
        seconds = values.get("seconds")
        if isinstance(seconds, int) and 0 < seconds < DEFAULT_LEASE_SECONDS:
            return values | {"response_seconds": seconds}
        return values

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if 0 < self.seconds < self.response_seconds:
            rule = f"must not be above seconds ({self.seconds}): Conductor refuses it"
            raise BrokenRule("response_seconds", rule, self.response_seconds)
        if 0 < self.total_seconds < self.seconds:
            rule = f"must not be above total_seconds ({self.total_seconds}): Conductor refuses it"
            raise BrokenRule("seconds", rule, self.seconds)
        # Only if the author set it: the default of 600 must not make a short total wrong.
        if 0 < self.total_seconds < self.response_seconds and "response_seconds" in self.model_fields_set:
            rule = f"must not be above total_seconds ({self.total_seconds}): it could never run out"
            raise BrokenRule("response_seconds", rule, self.response_seconds)
        return self


class ExecutionLimits(SpecBase):
    """Limits on attempts that run at once and on attempts that start in a window; None means no limit."""

    concurrent_exec_limit: Whole | None = None
    """The number of attempts of the task that may run at the same time, over all workers."""

    rate_limit_per_frequency: Whole | None = None
    """The number of attempts that may start within `rate_limit_frequency_in_seconds`; set both or neither."""

    rate_limit_frequency_in_seconds: Whole | None = None
    """The window of `rate_limit_per_frequency`, in seconds; set both or neither."""

    @model_validator(mode="after")
    def _rate_is_a_pair(self) -> Self:
        pair = {
            "rate_limit_per_frequency": self.rate_limit_per_frequency,
            "rate_limit_frequency_in_seconds": self.rate_limit_frequency_in_seconds,
        }
        missing = [name for name, value in pair.items() if value is None]
        if len(missing) == 1:
            present = next(name for name in pair if name not in missing)
            raise BrokenRule(present, f"must come together with {missing[0]}", pair[present])
        return self


class PublishBudget(SpecBase):
    """The time that a publication may take, derived from observed merges; sets request timeouts, leases and drains."""

    observed_merge_p99_seconds: Whole
    """The 99th percentile of the repository's merges, in seconds, as you measured it. The only field without a default."""

    safety_margin_seconds: Whole = 5
    """Seconds to add to the observed time; the merge timeout must cover the sum."""

    lakefs_merge_timeout_seconds: Positive = DEFAULT_MERGE_TIMEOUT_SECONDS
    """The timeout of a merge request, in seconds; after it the outcome is unknown and Perago settles it. The default is 60,
    or the observed time with its margin if that is longer."""

    conductor_completion_timeout_seconds: Positive = 30
    """The timeout of the request that completes the task in Conductor, in seconds."""

    worker_shutdown_grace_seconds: Positive = 60
    """The time that a stopping worker waits for an attempt that is publishing, in seconds."""

    heartbeat_interval_seconds: Positive = 30
    """Seconds between two extensions of the lease; a third of the response timeout is used if that is shorter."""

    @classmethod
    def _placeholder_values(cls) -> dict[str, Any]:
        return dict.fromkeys(cls.model_fields, 1) | {"safety_margin_seconds": 0}

    @model_validator(mode="before")
    @classmethod
    def _default_merge_timeout(cls, values: Any) -> Any:
        """Extend the default merge timeout to cover the observed time and its margin."""
        if not isinstance(values, dict) or "lakefs_merge_timeout_seconds" in values:
            return values
        parts = (values.get("observed_merge_p99_seconds"), values.get("safety_margin_seconds", 5))
        if all(isinstance(part, int) for part in parts) and sum(parts) > DEFAULT_MERGE_TIMEOUT_SECONDS:
            return values | {"lakefs_merge_timeout_seconds": sum(parts)}
        return values

    @model_validator(mode="after")
    def _merge_is_covered(self) -> Self:
        needed = self.observed_merge_p99_seconds + self.safety_margin_seconds
        if self.lakefs_merge_timeout_seconds < needed:
            rule = f"must cover observed_merge_p99_seconds plus safety_margin_seconds ({needed})"
            raise BrokenRule("lakefs_merge_timeout_seconds", rule, self.lakefs_merge_timeout_seconds)
        return self

    @property
    def response_timeout_seconds(self) -> int:
        """The response timeout that a publication needs: merge, completion, grace and one heartbeat."""
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.worker_shutdown_grace_seconds
            + self.heartbeat_interval_seconds
        )


class TaskControls(SpecBase):
    """Retries, timeouts, limits and publish budget of a task.  `timeout=3600` is short for `TimeoutPolicy(seconds=3600)`."""

    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    """Retries of a failed attempt: their number and delays."""

    timeout: TimeoutPolicy = Field(default_factory=TimeoutPolicy)
    """Time limits of attempts, the lease, and what happens when one has passed; a number stands for `seconds`."""

    limits: ExecutionLimits = Field(default_factory=ExecutionLimits)
    """Limits on attempts that run at once and on attempts that start in a window."""

    publish_budget: PublishBudget | None = None
    """The time that a publication may take; sets request timeouts, leases and drains. Only for tasks with a workspace."""

    if TYPE_CHECKING:
        # Type checkers take the fields for the arguments; only `timeout` accepts more than its field holds.
        def __init__(
            self,
            *,
            retry: RetryPolicy = ...,
            timeout: TimeoutPolicy | int = ...,
            limits: ExecutionLimits = ...,
            publish_budget: PublishBudget | None = ...,
        ) -> None: ...

    @field_validator("timeout", mode="before")
    @classmethod
    def _timeout_in_seconds(cls, value: Any) -> Any:
        return TimeoutPolicy(seconds=value) if type(value) is int else value

    @property
    def response_timeout_seconds(self) -> int:
        """The lease; the budget never overrides it."""
        return self.timeout.response_seconds
