"""The worker's health, as `/healthz` shows it.

`HealthState` records when each part was last alive, and `check` turns that into a verdict with reasons.  Polling is
alive while the server responds to polls, and while it is paused because no slot is free.  A failed poll is not a sign
of life: a worker that cannot reach its server is unhealthy.

In addition, parts set health problems, and clear them when they are over:

    result      the orchestrator has not accepted a result for a minute
    lease       a lease could not be extended for a minute
    outbox      results cannot be written to the root, and are sent from memory
    executors   no executor has become ready yet, or one keeps failing to become ready
    worker      the worker itself cannot run attempts, and is not polling
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["result", "lease", "outbox", "executors", "worker"]
PARTS: tuple[Part, ...] = get_args(Part)
UNHEALTHY_AFTER_SECONDS = 60.0
"""Seconds for which a server may be unreachable before a waiting result or lease makes the worker unhealthy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds without a sign of life after which a part of the worker is considered stalled."""

    poll: float = 60.0
    supervisor: float = 30.0


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict on a worker's health. `reasons` contains one sentence per problem."""

    reasons: tuple[str, ...]
    poll_age: dict[str, float]
    supervisor_age: float
    in_flight: int

    @property
    def healthy(self) -> bool:
        """True if there is no problem."""
        return not self.reasons


class HealthState:
    """The last sign of life of each part of the worker, and the problems that they have set. Thread-safe.

    `mask` hides secrets in reasons, because `/healthz` is public.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        mask: Callable[[str], str] = str,
    ) -> None:
        self._clock = clock
        self._mask = mask
        self._lock = threading.Lock()
        now = clock()
        self._polled = dict.fromkeys(tasks, now)
        self._beat = now
        self._in_flight = 0
        self._problems: dict[tuple[Part, str], str] = {}

    def note_poll(self, task: str) -> None:
        """Record that a poll for the task got a response, or that polling is paused because no slot is free."""
        with self._lock:
            self._polled[task] = self._clock()

    def beat(self) -> None:
        """Record an iteration of the supervisor's loop."""
        with self._lock:
            self._beat = self._clock()

    def set_in_flight(self, count: int) -> None:
        """Set the number of attempts in flight: those that were polled and have no accepted result yet."""
        with self._lock:
            self._in_flight = count

    def set_problem(self, part: Part, reason: str, key: str = "") -> None:
        """Set a problem. `key` distinguishes several problems in one part."""
        with self._lock:
            self._problems[part, key] = self._mask(reason)

    def clear_problem(self, part: Part, key: str = "") -> None:
        """Clear the problem that was set for this part and key."""
        with self._lock:
            self._problems.pop((part, key), None)

    def problems(self) -> list[tuple[Part, str]]:
        """Return each current problem as a pair: the part that has it, and the reason."""
        with self._lock:
            return [(part, reason) for (part, _), reason in self._problems.items()]

    def poll_ages(self) -> dict[str, float]:
        """Return, for each task, the seconds since polling was last alive."""
        with self._lock:
            now = self._clock()
            return {task: now - then for task, then in self._polled.items()}

    def in_flight_count(self) -> int:
        """Return the number of attempts in flight: those that were polled and have no accepted result yet."""
        with self._lock:
            return self._in_flight

    def supervisor_age(self) -> float:
        """Return the seconds since the last iteration of the supervisor's loop."""
        with self._lock:
            return self._clock() - self._beat


def check(health_state: HealthState, limits: Limits | None = None) -> Health:
    """Return the current verdict on the worker's health."""
    limits = limits or Limits()
    ages, beat = health_state.poll_ages(), health_state.supervisor_age()
    reasons = [
        f"no poll for {task} was answered for {age:.0f} s (limit {limits.poll:.0f} s)"
        for task, age in ages.items()
        if age > limits.poll
    ]
    if beat > limits.supervisor:
        reasons.append(f"the supervisor has not moved for {beat:.0f} s (limit {limits.supervisor:.0f} s)")
    reasons += [reason for _, reason in health_state.problems()]
    return Health(tuple(reasons), ages, beat, health_state.in_flight_count())
