"""Pollers: one thread per slot pool, which asks for as many attempts as the pool has free slots, and never for more.

With one task name, a poller uses long polls.  With several, it polls them in turn, without waiting, as long as there is
work.  When there is none, it polls in rounds, often enough to stay below the promised latency.  Each round asks once which
names have queued tasks (`queued_task_names`) and polls only those.  These polls do not wait: Conductor checks a queue every
100 ms, so a round of short waits would take that long per name.  This list is only a hint: every round also polls the name
whose turn it is.

A server that does not respond is polled again after a growing, jittered delay.  Nothing that a server does stops the
worker.

Each slot pool has its own poller, so that a pool without a free slot does not keep the others from polling.  `Pollers` is
used only on the supervisor's thread; the pollers post the attempts that they receive.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from perago.errors import OrchestratorError
from perago.orchestrator.base import Orchestrator
from perago.protocol.backoff import Backoff
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.inbox import Inbox, Polled, PollerEnded
from perago.runtime.worker.plan import SlotPool

log = logging.getLogger("perago.broker")

LONG_POLL_SECONDS = 1.0
ROUND_SECONDS = 0.08
IDLE_SECONDS = 5.0
BACKOFF = Backoff(0.2, longest=5.0, jitter=(0.5, 1.0))


class Poller:
    """Polls for one slot pool on its own thread.  Posts the attempts that arrive and, at the end, `PollerEnded`."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        names: Sequence[str],
        worker_id: str,
        inbox: Inbox,
        *,
        pool: int,
        health_state: HealthState,
    ) -> None:
        self._orchestrator = orchestrator
        self._names = list(names)
        self._worker_id = worker_id
        self._inbox = inbox
        self._pool = pool
        self._health_state = health_state
        self._changed = threading.Condition()
        self._room = 0
        self._in_transit = 0
        self._stopped = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="perago-poller", daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stop polling.  A poll in progress may still return attempts before the poller reports that it has stopped."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def offer(self, room: int, *, taken: int) -> None:
        """Set the number of free slots to `room`.

        `taken` is the number of attempts that arrived since the last offer.  `room` already takes them into account.
        """
        with self._changed:
            # Most worker events change nothing here, and waking the thread costs more than handling the event.
            if taken or room != self._room:
                self._in_transit -= taken
                self._room = room
                self._changed.notify()

    def _run(self) -> None:
        busy = True
        try:
            while not self._stopped:
                busy = self._poll_all(busy)
        finally:
            # Post this whatever ended the thread: a drain waits for the last poll and must not wait forever.
            self._inbox.post(PollerEnded(self._pool))

    def _poll_all(self, busy: bool) -> bool:
        """Poll every name once or, after an idle round, only names that may have queued tasks.

        Returns whether attempts arrived.
        """
        if not self._names:
            # The workflow has no step for this worker.
            self._wait_for_stop()
            return False
        alone = len(self._names) == 1
        found = 0
        for name in self._names[:] if alone or busy else self._names_to_poll():
            room = self._wait_for_room()
            if room > 0:
                found += self._poll(name, room, LONG_POLL_SECONDS if alone else 0.0)
        # The next round begins with another name, so that none of them starves.
        self._names.append(self._names.pop(0))
        return found > 0

    def _names_to_poll(self) -> list[str]:
        """Wait for the next round and a free slot, then return the names to poll.

        These are the name whose turn it is and the names that have queued tasks.
        """
        self._wait_for_stop(ROUND_SECONDS)
        if self._wait_for_room() <= 0:
            return []
        try:
            waiting = self._orchestrator.queued_task_names(self._names)
        except Exception as error:
            # Only a hint is missing; if polls fail as well, they report the error.
            log.debug("could not ask which tasks are queued, polling all: %s", error)
            return self._names[:]
        return [name for at, name in enumerate(self._names) if at == 0 or name in waiting]

    def _wait_for_room(self) -> int:
        """Wait until slots are free, and return how many attempts to ask for.  Returns 0 after `stop`."""
        with self._changed:
            while not self._stopped:
                if self._room > self._in_transit:
                    return self._room - self._in_transit
                self._show_life()
                self._changed.wait(IDLE_SECONDS)
            return 0

    def _show_life(self) -> None:
        """Tell the health state that the poller is alive, even though it is not polling because no slot is free."""
        for name in self._names:
            self._health_state.note_poll(name)

    def _poll(self, name: str, room: int, wait: float) -> int:
        try:
            found = self._orchestrator.poll(name, worker_id=self._worker_id, count=room, wait_seconds=wait)
        except Exception as error:
            # Not only the orchestrator's errors: an internal error must not end polling either.
            self._back_off(name, error)
            return 0
        if self._failures:
            log.info("polling for %s works again", name)
            self._failures = 0
        self._health_state.note_poll(name)
        if found:
            with self._changed:
                self._in_transit += len(found)
            self._inbox.post(Polled(self._pool, found))
        return len(found)

    def _back_off(self, name: str, error: Exception) -> None:
        self._failures += 1
        delay = BACKOFF.delay(self._failures)
        if self._failures == 1:
            trace = None if isinstance(error, OrchestratorError) else error
            log.warning("poll for %s failed, retrying in %.1f s: %s", name, delay, error, exc_info=trace)
        self._wait_for_stop(delay)

    def _wait_for_stop(self, timeout: float | None = None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, timeout)


class Pollers:
    """The pollers of all slot pools."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        slot_pools: Sequence[SlotPool],
        worker_id: str,
        inbox: Inbox,
        *,
        health_state: HealthState,
    ) -> None:
        self._received = [0] * len(slot_pools)
        self._ended = [False] * len(slot_pools)
        self._pollers = [
            Poller(orchestrator, slot_pool.tasks, worker_id, inbox, pool=pool, health_state=health_state)
            for pool, slot_pool in enumerate(slot_pools)
        ]

    @property
    def over(self) -> bool:
        """True if all pollers have stopped, so that no more attempts can arrive."""
        return all(self._ended)

    def start(self) -> None:
        """Start polling."""
        for poller in self._pollers:
            poller.start()

    def stop(self) -> None:
        """Stop polling.  Polls in progress may still return attempts."""
        for poller in self._pollers:
            poller.stop()

    def offer(self, rooms: Sequence[int]) -> None:
        """Tell each poller how many slots of its pool are free."""
        for pool, (poller, room) in enumerate(zip(self._pollers, rooms, strict=True)):
            poller.offer(room, taken=self._received[pool])
            self._received[pool] = 0

    def note_received(self, pool: int, count: int) -> None:
        """Record that attempts arrived, for the next offer."""
        self._received[pool] += count

    def note_ended(self, pool: int) -> None:
        """Record that a poller has stopped."""
        self._ended[pool] = True
