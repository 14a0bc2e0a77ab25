"""The phases of a worker's shutdown, its stop signals and its status server.

working ──signal, `drain`, `until`──▶ draining ──all done──▶ over
                                         └──second signal, time is up──▶ forced ──executors dead──▶ over
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

from perago.runtime.observe.health import HealthState, check
from perago.runtime.observe.metrics import NoMetrics
from perago.runtime.observe.status_server import StatusServer, parse_address
from perago.runtime.worker.inbox import Inbox, StopRequested

log = logging.getLogger("perago.start")

KILLED_SECONDS = 5.0
"""Maximum time that the worker waits for killed executors to die before it exits."""


@dataclass(slots=True)
class Shutdown:
    """The current phase of a worker, from working to forced shutdown.

    `kill_after` limits the drain, and `sending` limits the wait for unsent results, both in seconds.
    """

    kill_after: float | None
    sending: float
    phase: Literal["working", "draining", "forced"] = "working"
    _give_up_at: float | None = None
    _sent_by: float | None = None

    @property
    def working(self) -> bool:
        """True while the worker is taking new attempts."""
        return self.phase == "working"

    @property
    def draining(self) -> bool:
        """True while the worker is finishing the attempts in flight."""
        return self.phase == "draining"

    @property
    def forced(self) -> bool:
        """True once the executors have been killed."""
        return self.phase == "forced"

    def drain(self, now: float) -> None:
        """Begin to drain: take no more attempts."""
        self.phase = "draining"
        self._give_up_at = None if self.kill_after is None else now + self.kill_after

    def force(self, now: float) -> None:
        """Begin a forced shutdown: stop waiting for attempts."""
        self.phase = "forced"
        self._give_up_at = now + KILLED_SECONDS

    def out_of_time(self, now: float) -> bool:
        """Return whether the drain has taken too long."""
        return self.draining and self._give_up_at is not None and now >= self._give_up_at

    def over(self, now: float, *, busy: bool, executors: bool, unsent: bool) -> bool:
        """Return whether the worker may exit: nothing is busy, no executor is alive, and all results are sent.

        Unsent results delay the exit for at most `sending` seconds.  After `force`, only living executors delay it, for at
        most `KILLED_SECONDS`.
        """
        if self.working:
            return False
        if self.forced:
            return not executors or (self._give_up_at is not None and now >= self._give_up_at)
        if busy or executors:
            return False
        self._sent_by = self._sent_by or now + self.sending
        return not unsent or now >= self._sent_by


@contextmanager
def posting_stop_signals(inbox: Inbox) -> Iterator[None]:
    """Post every SIGINT and SIGTERM to the inbox.  Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def post(number: int, _frame: object) -> None:
        inbox.post(StopRequested(signal.Signals(number).name))

    before = {number: signal.signal(number, post) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_status(opened: ExitStack, address: str, health_state: HealthState, metrics: NoMetrics) -> None:
    """Serve /healthz and /metrics on `address` until the exit stack `opened` is closed."""
    server = opened.enter_context(
        StatusServer(parse_address(address), health=partial(check, health_state), metrics=metrics.exposition)
    )
    host, port = server.address
    log.info("serving /healthz and /metrics on http://%s:%d", host, port)
