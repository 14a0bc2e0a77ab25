"""Inboxes and listeners of tests: what a part of the worker reports, without a supervisor."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from perago.runtime.execution_result import DeliveryResult
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.inbox import Inbox, Message, ResultDelayed, ResultStored


class HandledAtOnce(Inbox):
    """Passes every message to a function, on the thread that posts it."""

    def __init__(self, handle: Callable[[Any], object]) -> None:
        super().__init__()
        self._handle = handle

    def post(self, message: Message) -> None:
        self._handle(message)


class ResultReports(Inbox):
    """Sorts what a result sender posts."""

    def __init__(self) -> None:
        super().__init__()
        self.delivered: SimpleQueue[DeliveryResult] = SimpleQueue()
        self.delays: SimpleQueue[ResultDelayed] = SimpleQueue()
        self.stored: SimpleQueue[Exception | None] = SimpleQueue()

    def post(self, message: Message) -> None:
        match message:
            case DeliveryResult():
                self.delivered.put(message)
            case ResultDelayed():
                self.delays.put(message)
            case ResultStored(_, error):
                self.stored.put(error)


class Lines:
    """Keeps the lines of bodies, and the executions whose output has ended."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self.mask = Masker(secrets)
        self.found: list[tuple[str, str]] = []
        self.ended: list[str] = []

    def on_line(self, execution_id: str, line: str) -> None:
        self.found.append((execution_id, line))

    def on_output_end(self, execution_id: str) -> None:
        self.ended.append(execution_id)
