"""Calls that other threads, and signal handlers, want made on the supervisor's own thread."""

from __future__ import annotations

import queue
from collections.abc import Callable

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
            self._notes.get(timeout=timeout)()
            while True:
                self._notes.get_nowait()()
        except queue.Empty:
            pass
