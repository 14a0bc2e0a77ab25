"""Jobs that come back: a few threads that run each job when it is due, until it says that it is done.

Leases, results that are being sent and sweeps are such jobs.  The rule: a job never waits for time to pass; it says
when it wants to run again, so that a server that is away holds up no thread.

Calls that other threads, and signal handlers, want made on the supervisor's own thread.

The rule: a call that fails is a mistake of ours.  It is logged, and the calls after it are made: they are about other
attempts and other slots.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

log = logging.getLogger("perago.timetable")

Job = Callable[[], float | None]
"""Does its work and returns the seconds until it wants to run again, or None when it is done."""

AFTER_A_FAILURE = 5.0


@dataclass(slots=True, order=True)
class _Entry:
    due: float
    number: int
    key: Hashable = field(compare=False)
    job: Job = field(compare=False)
    cancelled: bool = field(default=False, compare=False)


class JobScheduler:
    """Runs jobs by their keys; one job never runs twice at the same time."""

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
            # A call to a server that is away may hang for its whole time-out: nobody waits for that.
            thread.join(1.0)

    def add(self, key: Hashable, job: Job, *, after: float = 0.0) -> None:
        """Run `job` from then on; a job of the same key is taken off."""
        with self._changed:
            self._cancel(key)
            entry = _Entry(self._clock() + after, next(self._numbers), key, job)
            self._entries[key] = entry
            heapq.heappush(self._heap, entry)
            self._changed.notify()

    def cancel(self, key: Hashable) -> None:
        """Do not run that job again; a run under way is not broken off."""
        with self._changed:
            self._cancel(key)

    def __len__(self) -> int:
        """How many jobs are not done."""
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
                # A job that carries a result must not be lost to a mistake of ours.
                log.exception("a background job failed, and is tried again")
                delay = AFTER_A_FAILURE
            self._put_back(entry, delay)

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

    def _put_back(self, entry: _Entry, delay: float | None) -> None:
        with self._changed:
            if entry.cancelled:
                return
            if delay is None:
                self._entries.pop(entry.key, None)
                return
            entry.due = self._clock() + delay
            heapq.heappush(self._heap, entry)
            self._changed.notify()


queue_log = logging.getLogger("perago.mailbox")

Note = Callable[[], None]


class EventQueue:
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
        queue_log.exception("the worker met an error of its own, and goes on")
