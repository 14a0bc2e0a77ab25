"""What an execution moves between its workdir and the lake, and what it does not need to; with words on it for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from perago.runtime.ending import Moved

Note = Callable[[str], None]
"""Takes a few words about what a body is doing, for people; from any thread."""

_QUIET_SECONDS = 0.5
"""Transfers say how far they are no more often than this, and those that are over sooner say nothing."""


def say_nothing(_text: str) -> None:
    """The note-taker of a transaction that nobody watches."""


class Traffic:
    """Counts the bytes of one execution, from any thread; `down` and `up` are what a lake reports to.

    `note` gets a few words on a transfer that takes long.
    """

    def __init__(self, note: Note = say_nothing, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._moved = Moved()
        self._files = {"download": 0, "upload": 0}
        self._said_at = clock()

    @property
    def moved(self) -> Moved:
        """What has been counted so far."""
        return self._moved

    def down(self, files: int, size: int) -> None:
        """So many files are here, so many bytes came."""
        self._add("download", files, downloaded=size)

    def up(self, files: int, size: int) -> None:
        """So many files are there, so many bytes went."""
        self._add("upload", files, uploaded=size)

    def say(self, text: str) -> None:
        """A few words about what the body is doing."""
        self._note(text)

    def save(self, size: int) -> None:
        """So many bytes were here, or there, already."""
        self._add("", 0, saved=size)

    def _add(self, what: str, files: int, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        words = ""
        with self._lock:
            now = self._moved
            self._moved = Moved(now.downloaded + downloaded, now.uploaded + uploaded, now.saved + saved)
            if what:
                self._files[what] += files
                words = self._due_words(what)
        if words:
            self._note(words)

    def _due_words(self, what: str) -> str:
        now = self._clock()
        if now - self._said_at < _QUIET_SECONDS:
            return ""
        self._said_at = now
        size = self._moved.downloaded if what == "download" else self._moved.uploaded
        return f"{what}: {self._files[what]:,} files, {size / 1e6:,.1f} MB"
