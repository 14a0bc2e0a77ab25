"""Calls a function periodically on a thread while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(call: Callable[[], bool], *, every: float, name: str) -> Iterator[None]:
    """Run `call` every `every` seconds on a separate thread, until it returns False or the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every) and call():
            pass

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
