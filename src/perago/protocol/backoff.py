"""Backoff: how long to wait before retrying a failed call.

The delay after the first failure is `first` seconds.  Each further failure makes it `factor` times longer, up to
`longest`.  Jitter multiplies the delay by a random number, so that workers that lost a server at the same time do not
all retry at the same time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random, uniform


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing delays between retries, in seconds.  `jitter` is the range of the random factor."""

    first: float
    longest: float = math.inf
    factor: float = 2.0
    jitter: tuple[float, float] = (1.0, 1.0)

    def bound(self, failures: int) -> float:
        """Return the delay after `failures` failures in a row, without jitter."""
        try:
            return min(self.longest, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.longest

    def delay(self, failures: int, random: Random | None = None) -> float:
        """Return the delay after `failures` failures in a row, with jitter.

        The jitter is drawn from `random`, or from Python's global generator by default.
        """
        low, high = self.jitter
        if low == high:
            return self.bound(failures) * low
        # Unlike a generator created here, Python's own generator is reseeded in forked processes.
        return self.bound(failures) * (uniform(low, high) if random is None else random.uniform(low, high))
