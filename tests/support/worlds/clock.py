"""Time that the test moves: a clock, a timetable whose one job the test runs, and waiting for what other threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perago.runtime.worker.job_scheduler import Job
from perago.testing import Clock

__all__ = ["LONGEST_WAIT", "Clock", "JobByHand", "eventually"]

LONGEST_WAIT = 180.0


class JobByHand:
    """A timetable whose one job the test runs itself, at the times that it chooses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.job: Job = lambda: None

    def add(self, _key: object, job: Job) -> None:
        """Keep the job; it runs when the test says so."""
        self.job = job

    def run_after(self, seconds: float) -> float | None:
        """Let time pass and run the job; returns when it wants to run again."""
        self.clock.now += seconds
        return self.job()


def eventually(question: Callable[[], Any], what: str, longest: float = LONGEST_WAIT) -> Any:
    """The first answer that is true; the test fails if none comes."""
    until = time.monotonic() + longest
    pause = 0.02
    while not (answer := question()):
        assert time.monotonic() < until, f"waited {longest:.0f} s in vain: {what}"
        time.sleep(pause)
        # A question is often a call to a server, which should not spend its time on answering many of them.
        pause = min(0.2, pause * 1.3)
    return answer
