"""Work for many items, several at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

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
