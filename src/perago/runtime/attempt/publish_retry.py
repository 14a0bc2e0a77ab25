"""How often one execution tries to publish, and how long it waits in between.

On lakeFS the start of every merge breaks the swaps that are in flight, so publishers that try again at once keep each other
from landing.  A pause is therefore at least as long as the last merge took, and random, longer with every try.

The rule: all tries together, pauses included, take no longer than the merge time-out.  There is no limit by count.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_MOST_DOUBLINGS = 4
_LEAST_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Timing:
    """What time is made of; passed in, so that tests need not wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class PublishRetry:
    """The publish calls of one execution; `timeout` bounds them together."""

    timeout: float
    pace: Timing
    count: int = field(default=0, init=False)
    _ends: float | None = field(default=None, init=False)
    _last_took: float = field(default=0.0, init=False)

    @property
    def seconds_left(self) -> float:
        """How much of the time-out is left; it runs from the first try on."""
        return self.timeout if self._ends is None else max(0.0, self._ends - self.pace.clock())

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around a publish call."""
        began = self.pace.clock()
        self.count += 1
        if self._ends is None:
            self._ends = began + self.timeout
        try:
            yield
        finally:
            self._last_took = self.pace.clock() - began

    def next_pause(self) -> float | None:
        """How long to wait before the next try; None where another merge may not come to its end in time."""
        least = max(self._last_took, _LEAST_SECONDS)
        pause = self.pace.random.uniform(least, least * 2.0 ** min(self.count, _MOST_DOUBLINGS))
        return pause if pause + least <= self.seconds_left else None
