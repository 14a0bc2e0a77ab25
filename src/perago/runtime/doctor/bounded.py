"""Looks that end, whatever a server does: one that sends a byte now and then would keep a plain call for ever.

Only for looks that leave nothing to tidy up: the thread of one that took too long is left to itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST = 30.0


def within(seconds: float, look: Callable[[], T], otherwise: T) -> T:
    """What `look` returns, or `otherwise` if it takes longer; what it raises is raised here."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(look())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="perago-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    return results[0] if results else otherwise
