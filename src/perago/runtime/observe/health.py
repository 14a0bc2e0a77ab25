"""Whether the worker still does what it must keep doing.

`HealthState` notes when each part last showed life; `check` turns that into a verdict with reasons.  Polling counts as
alive while it answers, and while it rests because no slot is free.  A poll that fails is no sign of life: a worker
that cannot reach its server is not healthy, and says so.

Beside the signs of life stands what a part itself has found wrong, until it is right again:

    result      a result that the orchestrator has not taken for a minute
    lease       a lease that could not be extended for a minute
    outbox      results cannot be kept in the root, and are sent from memory
    executors   no executor is, or becomes, ready
    worker      the worker itself cannot work, and does not poll
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
"""How long a server may be away before a result or a lease that waits for it makes the worker unhealthy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds without a sign of life after which a part counts as stalled."""

    poll: float = 60.0
    supervisor: float = 30.0


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict; `reasons` say what is wrong, one sentence each."""

    reasons: tuple[str, ...]
    poll_age: dict[str, float]
    supervisor_age: float
    in_flight: int

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons


class HealthState:
    """When each part last showed life; from any thread.  `mask` hides secrets in reasons: anybody may read them."""

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
        self._wrong: dict[tuple[Part, str], str] = {}

    def polled(self, task: str) -> None:
        """A poll for the task was answered, or rests while no slot is free."""
        with self._lock:
            self._polled[task] = self._clock()

    def beat(self) -> None:
        """The supervisor's loop has turned."""
        with self._lock:
            self._beat = self._clock()

    def in_flight(self, count: int) -> None:
        """So many attempts are between poll and accepted result."""
        with self._lock:
            self._in_flight = count

    def wrong(self, part: Part, reason: str, key: str = "") -> None:
        """This is wrong from now on; `key` tells two of a kind apart."""
        with self._lock:
            self._wrong[part, key] = self._mask(reason)

    def right(self, part: Part, key: str = "") -> None:
        """It is right again."""
        with self._lock:
            self._wrong.pop((part, key), None)

    def what_is_wrong(self) -> list[tuple[Part, str]]:
        """What is wrong now, and in what way."""
        with self._lock:
            return [(part, reason) for (part, _), reason in self._wrong.items()]

    def poll_ages(self) -> dict[str, float]:
        """Seconds since polling last showed life, by task."""
        with self._lock:
            now = self._clock()
            return {task: now - then for task, then in self._polled.items()}

    def in_flight_count(self) -> int:
        """Attempts between poll and accepted result."""
        with self._lock:
            return self._in_flight

    def supervisor_age(self) -> float:
        """Seconds since the supervisor's loop last turned."""
        with self._lock:
            return self._clock() - self._beat


def check(health_state: HealthState, limits: Limits | None = None) -> Health:
    """The verdict now."""
    limits = limits or Limits()
    ages, beat = health_state.poll_ages(), health_state.supervisor_age()
    reasons = [
        f"no poll for {task} was answered for {age:.0f} s (limit {limits.poll:.0f} s)"
        for task, age in ages.items()
        if age > limits.poll
    ]
    if beat > limits.supervisor:
        reasons.append(f"the supervisor has not moved for {beat:.0f} s (limit {limits.supervisor:.0f} s)")
    reasons += [reason for _, reason in health_state.what_is_wrong()]
    return Health(tuple(reasons), ages, beat, health_state.in_flight_count())
