"""What Conductor is told about a task: retries, time-outs, limits; and the budget of a publication.

Field names and defaults are those of perago 0.6.1.  The rules hold Conductor's own, so that a declaration that
loads can be registered, and refuse the nonsense that Conductor takes (negative delays and limits).
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from perago.declare.diagnostics import BrokenRule
from perago.declare.spec_base import Declared, Positive, Whole

RetryLogic = Literal["FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"]
TimeoutAction = Literal["RETRY", "TIME_OUT_WF", "ALERT_ONLY"]


class RetryPolicy(Declared):
    """How often and after which delay Conductor tries a failed task again."""

    count: Whole = 3
    """How many times a failed attempt is tried again; 0 means never."""

    logic: RetryLogic = "FIXED"
    """How the delay grows: `FIXED`, `LINEAR_BACKOFF` or `EXPONENTIAL_BACKOFF`."""

    delay_seconds: Whole = 60
    """Seconds between a failure and the next try; with a backoff, before the first retry."""

    max_delay_seconds: Whole = 0
    """The longest delay that a backoff may reach, in seconds; 0 means no bound."""

    jitter_ms: Whole = 0
    """Up to this many milliseconds, at random, are added to each delay, so that tasks do not all retry at once."""


class TimeoutPolicy(Declared):
    """When Conductor gives up on a task, and what it does then; 0 means never, except for the response.

    `response_seconds` is the lease: Perago extends it while the attempt lives.
    """

    policy: TimeoutAction = "TIME_OUT_WF"
    """What Conductor does when `seconds` have passed: `RETRY`, end the workflow (`TIME_OUT_WF`), or only raise an alert
    (`ALERT_ONLY`, which ends nothing)."""

    seconds: Whole = 0
    """The longest that one attempt may take, in seconds; 0 means no limit, so a body that hangs keeps its slot."""

    response_seconds: Positive = 600
    """The lease in seconds: a worker that has been silent for so long has lost the attempt. Perago extends it meanwhile."""

    poll_seconds: Whole = 0
    """The longest that the task may wait for a worker, in seconds; 0 means no limit."""

    total_seconds: Whole = 0
    """The longest that all attempts together may take, in seconds; 0 means no limit."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if 0 < self.seconds < self.response_seconds:
            rule = f"must not be above seconds ({self.seconds}): Conductor refuses it"
            raise BrokenRule("response_seconds", rule, self.response_seconds)
        if 0 < self.total_seconds < self.seconds:
            rule = f"must not be above total_seconds ({self.total_seconds}): Conductor refuses it"
            raise BrokenRule("seconds", rule, self.seconds)
        # Only where it was said: the default of 600 must not make a short total wrong.
        if 0 < self.total_seconds < self.response_seconds and "response_seconds" in self.model_fields_set:
            rule = f"must not be above total_seconds ({self.total_seconds}): it could never run out"
            raise BrokenRule("response_seconds", rule, self.response_seconds)
        return self


class ExecutionLimits(Declared):
    """How many attempts may run at once, and how many may start in a window; None means no limit."""

    concurrent_exec_limit: Whole | None = None
    """How many attempts of the task may run at the same time, over all workers."""

    rate_limit_per_frequency: Whole | None = None
    """How many attempts may start within `rate_limit_frequency_in_seconds`; set both or neither."""

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


class PublishBudget(Declared):
    """The time a publication may take, from observed merges; sizes request time-outs, leases and drains."""

    observed_merge_p99_seconds: Whole
    """What 99 of 100 merges of the repository have taken at most, in seconds, as you measured it."""

    safety_margin_seconds: Whole
    """Seconds to add to the observed time; the merge timeout must cover the sum."""

    lakefs_merge_timeout_seconds: Positive
    """How long a merge request may take, in seconds, before its outcome counts as unknown and is looked up."""

    conductor_completion_timeout_seconds: Positive
    """How long the request that completes the task in Conductor may take, in seconds."""

    worker_shutdown_grace_seconds: Positive
    """How long a worker that is stopped waits for an attempt that is publishing, in seconds."""

    heartbeat_interval_seconds: Positive
    """Seconds between two extensions of the lease; a third of the response timeout is used if that is shorter."""

    @classmethod
    def _harmless(cls) -> dict[str, Any]:
        return dict.fromkeys(cls.model_fields, 1) | {"safety_margin_seconds": 0}

    @model_validator(mode="after")
    def _merge_is_covered(self) -> Self:
        needed = self.observed_merge_p99_seconds + self.safety_margin_seconds
        if self.lakefs_merge_timeout_seconds < needed:
            rule = f"must cover observed_merge_p99_seconds plus safety_margin_seconds ({needed})"
            raise BrokenRule("lakefs_merge_timeout_seconds", rule, self.lakefs_merge_timeout_seconds)
        return self

    @property
    def response_timeout_seconds(self) -> int:
        """The response time-out that a publication needs: merge, completion, grace and one heartbeat."""
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.worker_shutdown_grace_seconds
            + self.heartbeat_interval_seconds
        )


class TaskControls(Declared):
    """Everything a task says about how it is run."""

    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    """How often, and after which delay, a failed attempt is tried again."""

    timeout: TimeoutPolicy = Field(default_factory=TimeoutPolicy)
    """How long attempts may take, how long the lease is, and what happens after that."""

    limits: ExecutionLimits = Field(default_factory=ExecutionLimits)
    """How many attempts may run at once, and how many may start in a window."""

    publish_budget: PublishBudget | None = None
    """How long a publication may take; sizes request timeouts, leases and drains. Only for tasks with a workspace."""

    @property
    def response_timeout_seconds(self) -> int:
        """The lease; the budget never overrides it."""
        return self.timeout.response_seconds
