"""Time that the test moves: a clock, a timetable whose one job the test runs, and waiting for what other threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perago.runtime.worker.timetable import Job

LONGEST_WAIT = 180.0


class Clock:
    """A clock that only moves when told; `slept` holds what it was asked to sleep."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Pass the time at once."""
        self.slept.append(seconds)
        self.now += seconds


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
    while not (answer := question()):
        assert time.monotonic() < until, f"waited {longest:.0f} s in vain: {what}"
        time.sleep(0.02)
    return answer
