"""Work for many items, several at once.

Doing something again that failed without a verdict: the one rule of transfers for retries.

A bound on the bytes that transfers hold in memory.
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


def each(items: Sequence[T], work: Callable[[T], None], threads: int) -> None:
    """Do work for every item, several at once; the first error stops the rest and comes out."""
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


def again(options: Options, doing: str, work: Callable[[], T]) -> T:
    """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
    failures = 0
    while True:
        try:
            return work()
        except StoreUnreachable:
            # There is another way.
            raise
        except Exception as error:
            problem = translate(error, doing)
            failures += 1
            if failures >= options.tries or not isinstance(problem, LakeUnavailable):
                raise problem from error
        options.sleep(options.delay(failures))


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
