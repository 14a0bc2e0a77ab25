"""Looking again and again while something else runs, on a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def looking(look: Callable[[], bool], *, every: float, name: str) -> Iterator[None]:
    """Call `look` every so many seconds, on a thread of its own, until it says False or the block is over."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every) and look():
            pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
