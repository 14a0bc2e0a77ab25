"""Time that the test controls: a clock, a job that the test runs, and waiting for other threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perago.runtime.worker.job_scheduler import Job
from perago.testing import Clock

__all__ = ["LONGEST_WAIT", "Clock", "ManualJob", "eventually"]

LONGEST_WAIT = 180.0


class ManualJob:
    """A job scheduler with one job, which the test runs at the times it chooses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.job: Job = lambda: None

    def add(self, _key: object, job: Job) -> None:
        """Keep the job until the test runs it."""
        self.job = job

    def run_after(self, seconds: float) -> float | None:
        """Advance the clock and run the job; returns the delay until its next run."""
        self.clock.now += seconds
        return self.job()


def eventually(question: Callable[[], Any], what: str, longest: float = LONGEST_WAIT) -> Any:
    """Return the first true answer; the test fails if none comes in time."""
    until = time.monotonic() + longest
    pause = 0.02
    while not (answer := question()):
        assert time.monotonic() < until, f"waited {longest:.0f} s for nothing: {what}"
        time.sleep(pause)
        # The question is often a call to a server, which should not be kept busy with it.
        pause = min(0.2, pause * 1.3)
    return answer
