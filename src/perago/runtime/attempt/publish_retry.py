"""Retries of one execution's publish, and the delay between them.

On lakeFS the start of every merge breaks the swaps in flight, so publishers that retry at once keep each other from
landing.  A delay is therefore at least as long as the last merge took, random, and longer with every try.

The rule: all tries and delays together take no longer than the merge timeout.  The number of tries is not limited.
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
    """Clock, sleep and randomness; passed in, so that tests need not wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class PublishRetry:
    """Counts and limits one execution's publish calls; `timeout` is for all of them together."""

    timeout: float
    timing: Timing
    count: int = field(default=0, init=False)
    _ends: float | None = field(default=None, init=False)
    _last_took: float = field(default=0.0, init=False)

    @property
    def seconds_left(self) -> float:
        """The rest of the timeout, which starts with the first try."""
        return self.timeout if self._ends is None else max(0.0, self._ends - self.timing.clock())

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wrap one publish call."""
        began = self.timing.clock()
        self.count += 1
        if self._ends is None:
            self._ends = began + self.timeout
        try:
            yield
        finally:
            self._last_took = self.timing.clock() - began

    def next_pause(self) -> float | None:
        """Return the delay before the next try, or None if another merge might not finish in time."""
        least = max(self._last_took, _LEAST_SECONDS)
        pause = self.timing.random.uniform(least, least * 2.0 ** min(self.count, _MOST_DOUBLINGS))
        return pause if pause + least <= self.seconds_left else None
