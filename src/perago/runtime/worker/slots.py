"""The slots of a worker together: who is free, who starts next, who runs which execution."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from perago.runtime.worker.plan import Crew
from perago.runtime.worker.slot import Execution, Slot, Wiring


class Slots:
    """All slots; used from the supervisor's thread only."""

    def __init__(self, crews: Iterable[Crew], wiring: Wiring) -> None:
        self._slots: list[Slot] = []
        for crew in crews:
            first = len(self._slots)
            self._slots += [
                Slot(number, crew.launch, wiring, frozenset(crew.tasks))
                for number in range(first, first + crew.slots)
            ]

    def idle(self, crew: Crew) -> int:
        """How many slots of a crew wait for an attempt."""
        tasks = frozenset(crew.tasks)
        return sum(slot.state == "idle" and slot.tasks == tasks for slot in self._slots)

    @property
    def all_gone(self) -> bool:
        """Whether no executor is left."""
        return all(slot.state == "waiting" for slot in self._slots)

    def start_due(self, now: float) -> Iterator[tuple[Slot, int | Exception]]:
        """Start an executor in every slot whose time has come, and tell how many it has had, or why it has none.

        What one slot meets is its own: it waits as after a death, and the others start.
        """
        for slot in self._slots:
            if slot.state == "waiting" and slot.start_at <= now:
                try:
                    yield slot, slot.start()
                except Exception as error:
                    slot.bury(now, by_itself=True)
                    # The traceback keeps alive what `multiprocessing` had opened by then.
                    yield slot, error.with_traceback(None)

    def next_start(self) -> float | None:
        """When the next slot may start."""
        return min((slot.start_at for slot in self._slots if slot.state == "waiting"), default=None)

    def hand_out(self, waiting: deque[Execution]) -> Iterator[tuple[Execution, Exception]]:
        """Give waiting executions to idle slots, and tell which of them cannot be given to any, and why."""
        for slot in self._slots:
            while slot.state == "idle" and (execution := _next_for(slot, waiting)) is not None:
                try:
                    slot.give(execution)
                except Exception as error:
                    yield execution, error

    def running(self, execution_id: str) -> Slot | None:
        """The slot that runs an execution."""
        for slot in self._slots:
            if slot.execution is not None and slot.execution.id == execution_id:
                return slot
        return None

    def dismiss_idle(self) -> None:
        """Let every executor leave that has nothing to do."""
        for slot in self._slots:
            if slot.state == "idle":
                slot.dismiss()
            elif slot.state == "starting":
                slot.kill()

    def kill_all(self) -> None:
        """End every executor now."""
        for slot in self._alive():
            slot.kill()

    def _alive(self) -> Iterable[Slot]:
        return (slot for slot in self._slots if slot.state != "waiting")


def _next_for(slot: Slot, waiting: deque[Execution]) -> Execution | None:
    """Take the first waiting execution that a slot may run."""
    for execution in waiting:
        if slot.runs(execution.attempt.task_name):
            waiting.remove(execution)
            return execution
    return None
