"""What an author's code may change about its process, and how it is put back: one body cannot spoil the next.

`KEPT` is the whole list.  Each entry reads the present state and returns what restores it.  The rule: every entry is
restored, whatever the others and the author's code have done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perago.runtime.streams import keep_streams

log = logging.getLogger("perago.process_state")

Restore = Callable[[], None]
Keep = Callable[[], Restore]

KEPT: tuple[tuple[str, Keep], ...] = (("stdin, stdout and stderr", keep_streams),)


@contextmanager
def as_before() -> Iterator[None]:
    """Run an author's code; afterwards the process is as it was.

    In the main thread only, where executors run bodies: attempts in other threads share the process with each other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    restores = [(name, keep()) for name, keep in KEPT]
    try:
        yield
    finally:
        for name, restore in restores:
            _restore(name, restore)


def _restore(name: str, restore: Restore) -> None:
    try:
        restore()
    except Exception as error:
        log.warning("the task changed %s, and that cannot be undone: %s", name, error)
