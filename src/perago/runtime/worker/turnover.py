"""Executors come and go: what becomes of an execution whose executor is gone, or is stopped because its attempt is over.

    died before it began     handed out again, a few times
    died                     FAILED with the reason is sent for it
    stopped, being over      nothing is sent
    died after its ending    only what it left behind is removed

Like the supervisor, whose part it is, it runs on the one thread that decides.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass

from perago.protocol.outcome import Outcome, describe, executor_died
from perago.runtime.ending import Parcel
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import TOLD
from perago.runtime.worker.dead_executor import DeadExecutorCleanup, claim_of
from perago.runtime.worker.deliveries import Deliveries
from perago.runtime.worker.executions import Executions, fields_of
from perago.runtime.worker.fitness import Fitness
from perago.runtime.worker.links import Departure
from perago.runtime.worker.news import News
from perago.runtime.worker.records import DIED, STOPPED
from perago.runtime.worker.slot import Execution, Slot
from perago.runtime.worker.timetable import Timetable

log = logging.getLogger("perago.supervisor")

MOST_TRIES_TO_BEGIN = 3


@dataclass(frozen=True, slots=True)
class Turnover:
    """Sees to executors that start and end; `waiting` gets the executions that may be handed out again."""

    executions: Executions
    waiting: deque[Execution]
    deliveries: Deliveries
    cleanup: DeadExecutorCleanup
    chores: Timetable
    fitness: Fitness
    news: News

    def started(self, slot: Slot, started: int | Exception) -> None:
        """A slot has had so many executors with this one, or there is no room for one."""
        if isinstance(started, Exception):
            reason = describe(started)
            log.error("executor %d could not be started, and is tried again: %s", slot.number, reason)
            self.fitness.not_ready(slot.number, reason)
        elif started > 1:
            self.news.tell(Event("restarted", text=f"executor {slot.number}"))

    def gone(self, slot: Slot, departure: Departure, *, forced: bool) -> None:
        """The executor of a slot is gone; where it was killed to end the worker, nothing is said."""
        by_itself, stale, running = slot.state != "leaving", slot.stopped_stale, slot.execution
        how = departure.how
        if running is not None and not departure.heard:
            running.unsure = True
        if slot.state == "starting":
            self.fitness.not_ready(slot.number, slot.broken or f"it ended with {how}")
        left = slot.bury(time.monotonic(), by_itself=by_itself)
        if by_itself:
            log.error(
                "executor %d died: %s%s",
                *(slot.number, how, f" at step {running.step!r}" if running else ""),
                extra={**(fields_of(running) if running else {}), TOLD: True},
            )
            attempt, step = (running.attempt, running.step) if running else (None, "")
            self.news.tell(Event("died", attempt, running.id if running else "", step, text=how))
        for execution in left:
            if forced:
                self.cleanup.remove_workdir(execution)
                if execution.settled is None:
                    self.executions.stop(execution, STOPPED)
            elif execution.settled is not None:
                self.clean_later(execution)
            elif stale:
                self.executions.stop(execution, STOPPED)
                self.news.of("stopped", execution)
                self.clean_later(execution)
            else:
                self._died(execution, how)

    def over(self, execution: Execution, why: str, slot: Slot | None) -> None:
        """The orchestrator has moved on from an attempt that waits here, or runs in a slot: stop it, say nothing."""
        if execution.settled is not None or execution.died:
            return
        log.warning("the attempt is over (%s) and is stopped", why, extra=fields_of(execution))
        if slot is not None:
            slot.stopped_stale = True
            slot.kill()
        elif execution in self.waiting:
            self.waiting.remove(execution)
            self.executions.stop(execution, STOPPED)
            self.news.of("stopped", execution, text=why)

    def say_for(self, execution: Execution, outcome: Outcome) -> None:
        """Say for an attempt what it cannot say itself any more."""
        execution.ending = execution.ending or outcome.status
        parcel = Parcel(execution.id, execution.attempt, outcome, claim=claim_of(execution))
        self.deliveries.send(execution, parcel)

    def _died(self, execution: Execution, how: str) -> None:
        if not execution.step and execution.given < MOST_TRIES_TO_BEGIN:
            self.waiting.appendleft(execution)
            return
        execution.died, execution.ending = True, DIED
        execution.over(time.time())
        if not execution.step:
            self.fitness.failed(f"executors died with {how} before they began")
        self.say_for(execution, executor_died(how, execution.step))

    def clean_later(self, execution: Execution) -> None:
        """Remove what an execution has left that cannot do it itself."""
        # The claim of a settled execution is the courier's.
        claim = None if execution.settled is not None else claim_of(execution)
        self.chores.add(("clean", execution.id), lambda: self.cleanup.clean(execution, claim))
