"""Publishes worker events.  A failing listener must never stop the worker."""

from __future__ import annotations

import logging

from perago.runtime.observe.events import Event, Kind, Listener
from perago.runtime.worker.executions import Execution

log = logging.getLogger("perago.supervisor")


class EventPublisher:
    """Passes events to the worker's only listener."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Pass events to this listener from now on."""
        self._listener = listener

    def publish(self, event: Event) -> None:
        """Pass an event to the listener; log an error that it raises."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            log.exception("event listener failed on %r", event.kind)

    def publish_for(self, kind: Kind, execution: Execution, *, text: str = "") -> None:
        """Publish an event about an execution."""
        about = (execution.attempt, execution.id, execution.step, execution.result)
        self.publish(Event(kind, *about, text=text))
