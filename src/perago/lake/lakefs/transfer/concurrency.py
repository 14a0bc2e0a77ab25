"""Threads, retries and the memory budget for transfers.

Runs work for many items at once, retries calls whose outcome is unknown, and limits the bytes held in memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from perago.errors import LakeUnavailable
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.errors import translate
from perago.lake.lakefs.transfer.routing import StoreUnreachable

T = TypeVar("T")


def for_each(items: Sequence[T], work: Callable[[T], None], threads: int) -> None:
    """Run `work` for every item, on several threads. After an error, starts no further items and raises the error."""
    queue = deque(items)
    errors: list[BaseException] = []

    def run() -> None:
        while not errors:
            try:
                item = queue.popleft()
            except IndexError:
                return
            try:
                work(item)
            except BaseException as error:
                errors.append(error)

    count = min(threads, len(items))
    workers = [threading.Thread(target=run, name="perago-transfer", daemon=True) for _ in range(count - 1)]
    for worker in workers:
        worker.start()
    run()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def retry(options: Options, doing: str, work: Callable[[], T]) -> T:
    """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""
    failures = 0
    while True:
        try:
            return work()
        except StoreUnreachable:
            # The caller falls back to the gateway.
            raise
        except Exception as error:
            problem = translate(error, doing)
            failures += 1
            if failures >= options.tries or not isinstance(problem, LakeUnavailable):
                raise problem from error
        options.sleep(options.delay(failures))


class MemoryBudget:
    """Limits the bytes held in memory. A request above the limit waits until nothing else is reserved."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._room = threading.Condition()

    def take(self, size: int, *, wait: bool) -> bool:
        """Reserve `size` bytes and return True. Without `wait`, returns False if they are not available now."""
        with self._room:
            if wait:
                self._room.wait_for(lambda: self._fits(size))
            elif not self._fits(size):
                return False
            self._held += size
            return True

    def give_back(self, size: int) -> None:
        """Release reserved bytes."""
        with self._room:
            self._held -= size
            self._room.notify_all()

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Reserve bytes for the duration of the block."""
        self.take(size, wait=True)
        try:
            yield
        finally:
            self.give_back(size)

    def _fits(self, size: int) -> bool:
        return self._held == 0 or self._held + size <= self.limit
