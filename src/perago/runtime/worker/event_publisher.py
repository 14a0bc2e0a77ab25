"""Telling who looks on what happens in the worker.  The rule: who looks on must not end what is looked at."""

from __future__ import annotations

import logging

from perago.runtime.observe.events import Event, Kind, Listener
from perago.runtime.worker.slots import Execution

log = logging.getLogger("perago.supervisor")


class EventPublisher:
    """Passes events on to the one listener of a worker."""

    def __init__(self) -> None:
        self._listener: Listener = lambda _event: None

    def listen(self, listener: Listener) -> None:
        """Pass events on to this listener from now on."""
        self._listener = listener

    def tell(self, event: Event) -> None:
        """Something happened."""
        try:
            self._listener(event)
        except Exception:
            log.exception("nobody was told that %s", event.kind)

    def of(self, kind: Kind, execution: Execution, *, text: str = "") -> None:
        """Something happened to an execution."""
        done = (execution.attempt, execution.id, execution.step, execution.settled)
        self.tell(Event(kind, *done, text=text))
