"""Waiting for an orchestrator that is away, at the one place where an attempt cannot go on without it: a fence.

A server that is restarted must not cost the work of every attempt that ends in that minute.  Waiting is safe: the
answer, when it comes, is about that moment, and no answer still means that nothing is published.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from perago.errors import OrchestratorUnavailable

log = logging.getLogger("perago.orchestrator_wait")

LONGEST_WAIT_SECONDS = 300.0
LONGEST_PAUSE = 5.0

T = TypeVar("T")


def ask_until_answered(
    ask: Callable[[], T],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The first answer; `OrchestratorUnavailable` when none has come for five minutes."""
    until, pause = clock() + LONGEST_WAIT_SECONDS, 0.2
    while True:
        try:
            return ask()
        except OrchestratorUnavailable as away:
            if clock() >= until:
                raise
            log.warning("the attempt fence waits for the orchestrator: %s", away)
        sleep(pause * random.uniform(0.5, 1.0))
        pause = min(LONGEST_PAUSE, pause * 2)
