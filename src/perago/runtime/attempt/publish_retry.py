"""Retries of one execution's publish call, and the delays between them.

On lakeFS, every merge that starts makes the merges in flight fail their compare-and-swap, so publishers that retry
immediately would keep each other from landing.  A delay is therefore random and at least as long as the last merge
took, and its upper limit doubles with each of the first four tries.

All tries and delays together take no longer than the merge timeout.  The number of tries is not limited.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from perago.protocol.backoff import Backoff

_MOST_DOUBLINGS = 4
_LEAST_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, sleep function and random generator, injected so that tests need not wait."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    random: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class PublishRetry:
    """Counts one execution's publish calls and limits their total time to `timeout`."""

    timeout: float
    timing: Timing
    count: int = field(default=0, init=False)
    _ends: float | None = field(default=None, init=False)
    _last_took: float = field(default=0.0, init=False)

    @property
    def seconds_left(self) -> float:
        """Seconds left until the timeout, which is counted from the first try."""
        return self.timeout if self._ends is None else max(0.0, self._ends - self.timing.clock())

    @contextmanager
    def timed_call(self) -> Iterator[None]:
        """Count and time the publish call made in this block."""
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
        most = Backoff(2 * least, longest=2**_MOST_DOUBLINGS * least).bound(self.count)
        delay = self.timing.random.uniform(least, most)
        return delay if delay + least <= self.seconds_left else None
