"""What an execution moves between its workdir and the lake, and what it does not need to."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of one execution; `saved` are those of its input and its result that were not moved."""

    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0


class Traffic:
    """Counts the bytes of one execution, from any thread; `down` and `up` are what a lake reports to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moved = Moved()

    @property
    def moved(self) -> Moved:
        """What has been counted so far."""
        return self._moved

    def down(self, _files: int, size: int) -> None:
        """So many bytes came."""
        self._add(downloaded=size)

    def up(self, _files: int, size: int) -> None:
        """So many bytes went."""
        self._add(uploaded=size)

    def save(self, size: int) -> None:
        """So many bytes were here, or there, already."""
        self._add(saved=size)

    def _add(self, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        with self._lock:
            now = self._moved
            self._moved = Moved(now.downloaded + downloaded, now.uploaded + uploaded, now.saved + saved)
