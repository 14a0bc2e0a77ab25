"""Calls that other threads, and signal handlers, want made on the supervisor's own thread.

The rule: a call that fails is a mistake of ours.  It is logged, and the calls after it are made: they are about other
attempts and other slots.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable

log = logging.getLogger("perago.mailbox")

Note = Callable[[], None]


class Mailbox:
    """Notes in the order in which they were posted."""

    def __init__(self) -> None:
        # A SimpleQueue, because a signal handler may post while this very thread is posting.
        self._notes: queue.SimpleQueue[Note] = queue.SimpleQueue()

    def post(self, note: Note) -> None:
        """Have this called soon; from anywhere."""
        self._notes.put(note)

    def read(self, timeout: float) -> None:
        """Wait for a note up to `timeout`, then make the calls of all that are there."""
        try:
            note = self._notes.get(timeout=timeout)
            while True:
                _call(note)
                note = self._notes.get_nowait()
        except queue.Empty:
            pass


def _call(note: Note) -> None:
    try:
        note()
    except Exception:
        log.exception("the worker met an error of its own, and goes on")
