"""Polling: one thread that asks for as many attempts as there are free slots, and for no more.

With one task name it asks in long polls.  With several it goes round them without waiting while there is work.  When there
is none, rounds follow each other so soon that they stay below the latency we promise; each asks once which of the names
have something to take (`waiting`), and polls for those.  It does not wait in those polls: Conductor looks at a queue every
100 ms, so that a round of short waits would take that long for every name.  Nor does it rely on the hint: every round polls
for one of the names, whatever it says.

A server that does not answer is asked again, after a growing and jittered pause: nothing that it does ends the worker.

The brokers of a worker: one for each crew, so that a crew without a free slot does not keep the others from polling.

It belongs to the supervisor's thread; the brokers poll on their own, and post what they have got.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial

from perago.errors import OrchestratorError
from perago.orchestrator.base import Assignment, Orchestrator
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.job_scheduler import Note
from perago.runtime.worker.plan import SlotPool, WorkerPlan

log = logging.getLogger("perago.broker")

LONG_POLL_SECONDS = 1.0
ROUND_SECONDS = 0.08
REST_SECONDS = 5.0
LONGEST_PAUSE = 5.0


class Poller:
    """Polls while it runs; `polled` gets what came, on the broker's thread, and `ended` is its last word."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        names: Sequence[str],
        worker_id: str,
        *,
        polled: Callable[[Sequence[Assignment]], None],
        ended: Callable[[], None],
        health_state: HealthState,
    ) -> None:
        self._orchestrator = orchestrator
        self._names = list(names)
        self._worker_id = worker_id
        self._polled = polled
        self._ended = ended
        self._health_state = health_state
        self._changed = threading.Condition()
        self._room = 0
        self._on_the_way = 0
        self._stopped = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="perago-broker", daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self) -> None:
        """Poll no more; a poll under way may still bring attempts before `ended` is called."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def offer(self, room: int, *, taken: int) -> None:
        """So many slots are free; `taken` are the attempts received since the last offer, counted in already."""
        with self._changed:
            # Most of a worker's news leave this as it is, and waking the thread costs more than the news.
            if taken or room != self._room:
                self._on_the_way -= taken
                self._room = room
                self._changed.notify()

    def _run(self) -> None:
        busy = True
        try:
            while not self._stopped:
                busy = self._round(busy)
        finally:
            # Whatever ends it: who waits for the last poll must not wait for ever.
            self._ended()

    def _round(self, busy: bool) -> bool:
        """Ask for every name once; tells whether something came."""
        if not self._names:
            # The worker of a workflow that has no step for it.
            with self._changed:
                self._changed.wait_for(lambda: self._stopped)
            return False
        alone = len(self._names) == 1
        found = 0
        for name in self._names[:] if alone or busy else self._worth_asking_for():
            room = self._wait_for_room()
            if room > 0:
                found += self._poll(name, room, LONG_POLL_SECONDS if alone else 0.0)
        # The next round begins with another name, so that none of them starves.
        self._names.append(self._names.pop(0))
        return found > 0

    def _worth_asking_for(self) -> list[str]:
        """After a pause, and while there is room: the name whose turn it is, and those that have something to take."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, ROUND_SECONDS)
        if self._wait_for_room() <= 0:
            return []
        try:
            waiting = self._orchestrator.waiting(self._names)
        except Exception as error:
            # Whatever it is, only a hint is missing; polls tell what is wrong, if they fail as well.
            log.debug("which tasks are waiting cannot be told: %s", error)
            return self._names[:]
        return [name for at, name in enumerate(self._names) if at == 0 or name in waiting]

    def _wait_for_room(self) -> int:
        """How many attempts may be asked for; 0 when there is nothing more to ask."""
        with self._changed:
            while not self._stopped:
                if self._room > self._on_the_way:
                    return self._room - self._on_the_way
                self._rest()
                self._changed.wait(REST_SECONDS)
            return 0

    def _rest(self) -> None:
        for name in self._names:
            self._health_state.polled(name)

    def _poll(self, name: str, room: int, wait: float) -> int:
        try:
            found = self._orchestrator.poll(name, worker_id=self._worker_id, count=room, wait_seconds=wait)
        except Exception as error:
            # An error that is not the orchestrator's is a mistake of ours, and no reason to poll never again.
            self._pause(name, error)
            return 0
        if self._failures:
            log.info("polling for %s works again", name)
            self._failures = 0
        self._health_state.polled(name)
        if found:
            with self._changed:
                self._on_the_way += len(found)
            self._polled(found)
        return len(found)

    def _pause(self, name: str, error: Exception) -> None:
        if not self._failures:
            trace = None if isinstance(error, OrchestratorError) else error
            log.warning("polling for %s failed, and goes on: %s", name, error, exc_info=trace)
        pause = min(LONGEST_PAUSE, 0.2 * 2.0**self._failures) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 10)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, pause)


Polled = Callable[[Sequence[Assignment]], None]


class Polling:
    """Polls for every crew; `polled` gets what came, on the supervisor's thread."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        plan: WorkerPlan,
        *,
        polled: Polled,
        post: Callable[[Note], None],
        health_state: HealthState,
    ) -> None:
        self._polled = polled
        self._crews = plan.crews
        self._taken = [0] * len(self._crews)
        self._ended = [False] * len(self._crews)
        self._brokers = [
            Poller(
                orchestrator,
                slot_pool.tasks,
                plan.worker_id,
                polled=partial(_post, post, partial(self._came, at)),
                ended=partial(_post, post, partial(self._end, at)),
                health_state=health_state,
            )
            for at, slot_pool in enumerate(self._crews)
        ]

    @property
    def over(self) -> bool:
        """Whether no poll can bring anything any more."""
        return all(self._ended)

    def start(self) -> None:
        """Begin to poll."""
        for poller in self._brokers:
            poller.start()

    def stop(self) -> None:
        """Poll no more; polls under way may still bring attempts."""
        for poller in self._brokers:
            poller.stop()

    def offer(self, room: Callable[[SlotPool], int]) -> None:
        """So much room is there for each crew by now."""
        for at, (slot_pool, poller) in enumerate(zip(self._crews, self._brokers, strict=True)):
            poller.offer(room(slot_pool), taken=self._taken[at])
            self._taken[at] = 0

    def _came(self, at: int, found: Sequence[Assignment]) -> None:
        self._polled(found)
        self._taken[at] += len(found)

    def _end(self, at: int) -> None:
        self._ended[at] = True


def _post(post: Callable[[Note], None], call: Callable[..., None], *arguments: object) -> None:
    post(partial(call, *arguments))
