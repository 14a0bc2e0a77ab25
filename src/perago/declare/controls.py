"""Task controls: retries, timeouts, limits and the publish budget.

The field names are those of perago 0.6.1.  The rules include Conductor's own, so that any declaration that loads can
also be registered.  They also reject invalid values that Conductor accepts (negative delays and limits).
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
"""The default merge timeout, which also applies to a task without a publish budget."""


class RetryPolicy(SpecBase):
    """The number of retries of a failed task, and the delays between them."""

    count: Whole = 3
    """The number of retries after a failed attempt; 0 means none."""

    logic: RetryLogic = "FIXED"
    """The way the delay grows: `FIXED`, `LINEAR_BACKOFF` or `EXPONENTIAL_BACKOFF`."""

    delay_seconds: Whole = 60
    """Seconds between a failure and the next retry. With a backoff, the delay before the first retry."""

    max_delay_seconds: Whole = 0
    """The longest delay that a backoff may reach, in seconds; 0 means no limit."""

    jitter_ms: Whole = 0
    """The maximum random number of milliseconds added to each delay, so that tasks do not all retry at once."""


class TimeoutPolicy(SpecBase):
    """A task's time limits, and Conductor's reaction when one expires.  0 means no limit, except in `response_seconds`.

    `response_seconds` is the lease, which Perago extends while the attempt runs.
    """

    policy: TimeoutAction = "TIME_OUT_WF"
    """Conductor's reaction when `seconds` have passed: retry (`RETRY`), end the workflow (`TIME_OUT_WF`), or only
    raise an alert (`ALERT_ONLY`, which ends nothing)."""

    seconds: Whole = 0
    """The maximum duration of one attempt, in seconds. 0 means no limit, so a body that hangs keeps its slot."""

    response_seconds: Positive = DEFAULT_LEASE_SECONDS
    """The lease in seconds: a worker that is silent for longer loses the attempt. Perago extends it while the attempt
    runs. The default is 600, or `seconds` if that is shorter."""

    poll_seconds: Whole = 0
    """The maximum time that the task may wait for a worker, in seconds; 0 means no limit."""

    total_seconds: Whole = 0
    """The maximum duration of all attempts together, in seconds; 0 means no limit."""

    @model_validator(mode="before")
    @classmethod
    def _default_lease(cls, values: Any) -> Any:
        """Shorten the default lease to `seconds`, because Conductor rejects a longer one."""
        if not isinstance(values, dict) or "response_seconds" in values:
            return values
        seconds = values.get("seconds")
        # A bool is reported once, for the field that has it.
        if type(seconds) is int and 0 < seconds < DEFAULT_LEASE_SECONDS:
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
        # Only if the author set it: the default of 600 must not make a shorter total invalid.
        if 0 < self.total_seconds < self.response_seconds and "response_seconds" in self.model_fields_set:
            rule = f"must not be above total_seconds ({self.total_seconds}): it could never run out"
            raise BrokenRule("response_seconds", rule, self.response_seconds)
        return self


class ExecutionLimits(SpecBase):
    """Limits on concurrent attempts and on the rate at which attempts start; None means no limit."""

    concurrent_exec_limit: Whole | None = None
    """The number of attempts of the task that may run at the same time, across all workers."""

    rate_limit_per_frequency: Whole | None = None
    """The number of attempts that may start within `rate_limit_frequency_in_seconds`; set both or neither."""

    rate_limit_frequency_in_seconds: Whole | None = None
    """The length of the window for `rate_limit_per_frequency`, in seconds; set both or neither."""

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
    """The time that a publication may take, based on observed merges.

    It determines request timeouts, how often leases are extended, and how long a drain waits.
    """

    observed_merge_p99_seconds: Whole
    """The measured 99th percentile of merge times in the repository, in seconds. The only field without a default."""

    safety_margin_seconds: Whole = 5
    """The margin, in seconds, on top of the observed time. The merge timeout must be at least the sum of the two."""

    lakefs_merge_timeout_seconds: Positive = DEFAULT_MERGE_TIMEOUT_SECONDS
    """The timeout of a merge request, in seconds. After it, the outcome is unknown and Perago settles it. The default
    is 60, or the observed time plus the margin if that is longer."""

    conductor_completion_timeout_seconds: Positive = 30
    """The timeout of the request that completes the task in Conductor, in seconds."""

    worker_shutdown_grace_seconds: Positive = 60
    """Seconds that a stopping worker waits for an attempt that is publishing."""

    heartbeat_interval_seconds: Positive = 30
    """Seconds between lease extensions, or a third of the response timeout if that is shorter."""

    @classmethod
    def _placeholder_values(cls) -> dict[str, Any]:
        return dict.fromkeys(cls.model_fields, 1) | {"safety_margin_seconds": 0}

    @model_validator(mode="before")
    @classmethod
    def _default_merge_timeout(cls, values: Any) -> Any:
        """Raise the default merge timeout to the observed time plus the margin, if that is longer."""
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
        """The response timeout that a publication needs.

        It is the sum of the merge timeout, the completion timeout, the shutdown grace and one heartbeat interval.
        """
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.worker_shutdown_grace_seconds
            + self.heartbeat_interval_seconds
        )


class TaskControls(SpecBase):
    """A task's retries, timeouts, limits and publish budget.  `timeout=3600` means `TimeoutPolicy(seconds=3600)`."""

    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    """The number of retries of a failed attempt, and the delays between them."""

    timeout: TimeoutPolicy = Field(default_factory=TimeoutPolicy)
    """Time limits for attempts, the lease, and the reaction when a limit expires. A number stands for `seconds`."""

    limits: ExecutionLimits = Field(default_factory=ExecutionLimits)
    """Limits on concurrent attempts and on the rate at which attempts start."""

    publish_budget: PublishBudget | None = None
    """The time that a publication may take, and the timeouts that depend on it. Only for tasks with a workspace."""

    if TYPE_CHECKING:
        # Type checkers derive the arguments from the fields, but `timeout` accepts more than its field's type.
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
        """The lease, in seconds.  The publish budget never overrides it."""
        return self.timeout.response_seconds
