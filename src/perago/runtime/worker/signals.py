"""SIGINT and SIGTERM as calls, for as long as a worker runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_stop_signals(act: Callable[[str], None]) -> Iterator[None]:
    """Call `act` with the signal's name; only the main thread can be told, in another one nothing happens."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda got, _frame: act(signal.Signals(got).name))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
