"""Tasks of which an update got no answer: the server may carry it out at any time, or never.

The rule: what was noted once stays noted.  That a later update was answered does not say that the earlier one is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perago.errors import OrchestratorUnavailable

MOST = 4096
"""More than a worker has in flight; beyond that the oldest are forgotten."""


class Unheard:
    """Task ids; safe for threads."""

    def __init__(self) -> None:
        self._tasks: dict[str, None] = {}
        self._changing = threading.Lock()

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    @contextmanager
    def noting(self, task_id: str) -> Iterator[None]:
        """Note the task if the update inside gets no answer."""
        try:
            yield
        except OrchestratorUnavailable:
            with self._changing:
                self._tasks[task_id] = None
                while len(self._tasks) > MOST:
                    del self._tasks[next(iter(self._tasks))]
            raise
