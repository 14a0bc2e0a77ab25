"""A bound on the bytes that transfers hold in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Budget:
    """So many bytes at once; a single wish above the bound waits until it is alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._room = threading.Condition()

    def take(self, size: int, *, wait: bool) -> bool:
        """Take room for `size` bytes; without `wait` only if there is some now."""
        with self._room:
            if wait:
                self._room.wait_for(lambda: self._fits(size))
            elif not self._fits(size):
                return False
            self._held += size
            return True

    def give_back(self, size: int) -> None:
        """Return what was taken."""
        with self._room:
            self._held -= size
            self._room.notify_all()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Take room, and give it back at the end."""
        self.take(size, wait=True)
        try:
            yield
        finally:
            self.give_back(size)

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self.limit
