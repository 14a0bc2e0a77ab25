"""A manual clock, so that a trial never has to wait for retries and leases."""

from __future__ import annotations


class Clock:
    """A clock that advances only in `sleep`. `slept` records every call.

    Pass one to `try_workflow` to choose when the workflow starts, or to read afterwards how long it would have taken.
    """

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        """Return the time, in seconds since 1970."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting."""
        self.slept.append(seconds)
        self.now += seconds
