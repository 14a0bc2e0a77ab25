"""The brokers of a worker: one for each crew, so that a crew without a free slot does not keep the others from polling.

It belongs to the supervisor's thread; the brokers poll on their own, and post what they have got.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from perago.orchestrator.base import Assignment, Orchestrator
from perago.runtime.observe.health import Pulse
from perago.runtime.worker.broker import Broker
from perago.runtime.worker.mailbox import Note
from perago.runtime.worker.plan import Crew, WorkerPlan

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
        pulse: Pulse,
    ) -> None:
        self._polled = polled
        self._crews = plan.crews
        self._taken = [0] * len(self._crews)
        self._ended = [False] * len(self._crews)
        self._brokers = [
            Broker(
                orchestrator,
                crew.tasks,
                plan.worker_id,
                polled=partial(_post, post, partial(self._came, at)),
                ended=partial(_post, post, partial(self._end, at)),
                pulse=pulse,
            )
            for at, crew in enumerate(self._crews)
        ]

    @property
    def over(self) -> bool:
        """Whether no poll can bring anything any more."""
        return all(self._ended)

    def start(self) -> None:
        """Begin to poll."""
        for broker in self._brokers:
            broker.start()

    def stop(self) -> None:
        """Poll no more; polls under way may still bring attempts."""
        for broker in self._brokers:
            broker.stop()

    def offer(self, room: Callable[[Crew], int]) -> None:
        """So much room is there for each crew by now."""
        for at, (crew, broker) in enumerate(zip(self._crews, self._brokers, strict=True)):
            broker.offer(room(crew), taken=self._taken[at])
            self._taken[at] = 0

    def _came(self, at: int, found: Sequence[Assignment]) -> None:
        self._polled(found)
        self._taken[at] += len(found)

    def _end(self, at: int) -> None:
        self._ended[at] = True


def _post(post: Callable[[Note], None], call: Callable[..., None], *arguments: object) -> None:
    post(partial(call, *arguments))
