"""Runs recurring jobs on a few threads.

Extending leases, sending results and sweeping are such jobs.  A job never sleeps.  Instead it returns the delay before
its next run, so that an unreachable server does not block a thread.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

log = logging.getLogger("perago.timetable")

Job = Callable[[], float | None]
"""A function that returns the seconds until its next run, or None when it is done."""

RETRY_SECONDS = 5.0
"""The delay before a job runs again after it has raised an exception."""


@dataclass(slots=True, order=True)
class _Entry:
    due: float
    number: int
    key: Hashable = field(compare=False)
    job: Job = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class JobScheduler:
    """Runs jobs, each identified by a key.  A job never runs twice at the same time."""

    def __init__(self, name: str, *, threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[Hashable, _Entry] = {}
        self._heap: list[_Entry] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name=f"perago-{name}-{n}", daemon=True) for n in range(threads)
        ]

    def __enter__(self) -> JobScheduler:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            # A call to an unreachable server may hang until it times out: do not wait for that.
            thread.join(1.0)

    def add(self, key: Hashable, job: Job, *, after: float = 0.0) -> None:
        """Run `job` in `after` seconds, and again after each delay that it returns.  Replaces a job with the same key."""
        with self._changed:
            self._cancel(key)
            entry = _Entry(self._clock() + after, next(self._numbers), key, job)
            self._entries[key] = entry
            heapq.heappush(self._heap, entry)
            self._changed.notify()

    def cancel(self, key: Hashable) -> None:
        """Cancel all future runs of the job.  A run in progress is not interrupted."""
        with self._changed:
            self._cancel(key)

    def __len__(self) -> int:
        """Return the number of jobs that are not done."""
        with self._changed:
            return len(self._entries)

    def _cancel(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.cancelled = True

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            try:
                delay = entry.job()
            except Exception:
                # A job that sends a result must not be lost to an internal error.
                log.exception("background job failed, retrying in %.1f s", RETRY_SECONDS)
                delay = RETRY_SECONDS
            self._reschedule(entry, delay)

    def _next(self) -> _Entry | None:
        with self._changed:
            while not self._stopped:
                while self._heap and self._heap[0].cancelled:
                    heapq.heappop(self._heap)
                wait = self._heap[0].due - self._clock() if self._heap else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._heap)
                self._changed.wait(wait)
            return None

    def _reschedule(self, entry: _Entry, delay: float | None) -> None:
        with self._changed:
            if entry.cancelled:
                return
            if delay is None:
                self._entries.pop(entry.key, None)
                return
            entry.due = self._clock() + delay
            heapq.heappush(self._heap, entry)
            self._changed.notify()
