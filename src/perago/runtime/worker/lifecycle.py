"""How a worker ends: first it drains, and if that is not soon enough, it is forced.

working ──signal, `drain`, `until`──▶ draining ──all done──▶ over
                                         └──second signal, time is up──▶ forced ──executors dead──▶ over

SIGINT and SIGTERM as calls, for as long as a worker runs.

A worker as a service: logged, counted, with its status page, until a signal ends it.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from perago.runtime.observe.health import HealthState, check
from perago.runtime.observe.metrics import NoMetrics
from perago.runtime.observe.status_server import StatusServer, parse_address

KILLED_SECONDS = 5.0
"""How long killed executors may take to be gone before the worker leaves without them."""


@dataclass(slots=True)
class Shutdown:
    """Where the worker is on its way out; `kill_after` and `sending` are seconds."""

    kill_after: float | None
    sending: float
    phase: Literal["working", "draining", "forced"] = "working"
    _give_up_at: float | None = None
    _sent_by: float | None = None

    @property
    def working(self) -> bool:
        """Whether new attempts are taken."""
        return self.phase == "working"

    @property
    def draining(self) -> bool:
        """Whether what is in flight is being finished."""
        return self.phase == "draining"

    @property
    def forced(self) -> bool:
        """Whether executors were killed."""
        return self.phase == "forced"

    def drain(self, now: float) -> None:
        """Take no more attempts."""
        self.phase = "draining"
        self._give_up_at = None if self.kill_after is None else now + self.kill_after

    def force(self, now: float) -> None:
        """Do not wait for attempts any more."""
        self.phase = "forced"
        self._give_up_at = now + KILLED_SECONDS

    def out_of_time(self, now: float) -> bool:
        """Whether the drain took too long."""
        return self.draining and self._give_up_at is not None and now >= self._give_up_at

    def over(self, now: float, *, busy: bool, executors: bool, unsent: bool) -> bool:
        """Whether the worker may leave: nothing is busy, no executor lives, every result is sent or out of time."""
        if self.working:
            return False
        if self.forced:
            return not executors or (self._give_up_at is not None and now >= self._give_up_at)
        if busy or executors:
            return False
        self._sent_by = self._sent_by or now + self.sending
        return not unsent or now >= self._sent_by


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


log = logging.getLogger("perago.start")


def _show_status(opened: ExitStack, where: str, health_state: HealthState, metrics: NoMetrics) -> None:
    server = opened.enter_context(
        StatusServer(parse_address(where), health=lambda: check(health_state), metrics=metrics.exposition)
    )
    host, port = server.address
    log.info("serving /healthz and /metrics on http://%s:%d", host, port)
