"""One slot of a worker: an executor, what it is doing, and when the next one may take its place.

    waiting ──start──▶ starting ──Ready──▶ idle ◀──Ended── busy
       ▲                                    └───Run──────────▶┘
       └────────── gone: it left, died, or was killed ◀── leaving (told to stop)

A slot belongs to the supervisor's thread.  What its executor is, and how it is reached, is its link's matter.

The slots of a worker together: who is free, who starts next, who runs which execution.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.executor_protocol import (
    Answer,
    ExecutorExit,
    ExecutorFactory,
    Link,
    LinkCallbacks,
    Run,
    Stop,
)
from perago.runtime.worker.output_capture import Sink
from perago.runtime.worker.plan import SlotPool

State = Literal["waiting", "starting", "idle", "busy", "leaving"]

LONGEST_BACKOFF = 30.0


@dataclass(slots=True, eq=False)
class Execution:
    """One run of one attempt, as the supervisor follows it."""

    id: str
    assignment: Assignment
    step: str = ""
    settled: ExecutionResult | None = None
    died: bool = False
    ending: str = ""
    """How it ended, where it could not tell itself."""
    started: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each step took, as seen from here."""
    given: int = 0
    unsure: bool = False
    """Whether an executor that is gone may have got further with it than is known here."""
    output_read: threading.Event = field(default_factory=threading.Event)

    _step_began: float = 0.0

    @property
    def attempt(self) -> Attempt:
        """The attempt that is run."""
        return self.assignment.attempt

    def begin(self, step: str, now: float) -> None:
        """A step begins, and the one before is over."""
        self.started = self.started or now
        self.over(now)
        self.step, self._step_began = step, now

    def over(self, now: float) -> None:
        """Its last step is over, though nobody has said so."""
        if self.step:
            self.seconds[self.step] = self.seconds.get(self.step, 0.0) + max(0.0, now - self._step_began)


@dataclass(frozen=True, slots=True)
class SlotCallbacks:
    """How slots reach the supervisor; all of it may be called from any thread."""

    answered: Callable[[Slot, Answer], None]
    gone: Callable[[Slot, ExecutorExit], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


@dataclass(slots=True, eq=False)
class Slot:
    """One executor at a time; `uncleaned` are settled executions whose workdir may still be there."""

    number: int
    launch: ExecutorFactory
    slot_callbacks: SlotCallbacks
    tasks: frozenset[str] | None = None
    """The names of the tasks that it runs; None for all."""
    state: State = "waiting"
    execution: Execution | None = None
    uncleaned: dict[str, Execution] = field(default_factory=dict)
    start_at: float = 0.0
    done: int = 0
    stopped_stale: bool = False
    broken: str = ""
    _starts: int = 0
    _failures: int = 0
    _link: Link | None = None

    def start(self) -> int:
        """Start an executor; returns how many this slot has had with it.

        Where there is no room for one this raises, and nothing is left of the try.
        """
        slot_callbacks = self.slot_callbacks
        callbacks = LinkCallbacks(
            partial(slot_callbacks.answered, self),
            partial(slot_callbacks.gone, self),
            slot_callbacks.printed,
            slot_callbacks.output_ended,
            slot_callbacks.mask,
        )
        # Before the start: one that is there at once may say so at once.
        self.state, self.done, self.stopped_stale, self.broken = "starting", 0, False, ""
        self._link = self.launch.start(self.number, callbacks)
        self._starts += 1
        return self._starts

    def runs(self, task_name: str) -> bool:
        """Whether its executors run this task."""
        return self.tasks is None or task_name in self.tasks

    def ready(self) -> None:
        """The executor has started and takes attempts."""
        if self.state == "starting":
            self.state = "idle"

    def give(self, execution: Execution) -> None:
        """Hand an attempt to the idle executor; one that cannot be handed over raises, and leaves the slot idle."""
        execution.given += 1
        assert self._link is not None  # noqa: S101 - only a started slot is given anything
        self._link.send(Run(execution.id, execution.assignment, execution.given))
        self.execution, self.state = execution, "busy"

    def ended(self, execution_id: str, settled: ExecutionResult) -> Execution | None:
        """The executor has settled its attempt and is idle again."""
        execution = self.execution
        if execution is None or execution.id != execution_id:
            return None
        execution.settled = settled
        self.execution, self._failures = None, 0
        self.uncleaned[execution_id] = execution
        self.done += 1
        if self.state == "busy":
            self.state = "idle"
        return execution

    def dismiss(self) -> None:
        """Tell the executor to finish cleaning up and leave."""
        self.state = "leaving"
        if self._link is not None:
            self._link.send(Stop())

    def kill(self) -> None:
        """End the executor and everything it has started, now."""
        self.state = "leaving"
        if self._link is not None:
            self._link.kill()

    def on_exit(self, now: float, *, by_itself: bool) -> list[Execution]:
        """The executor is gone: returns the executions it may have left things of, and plans the next start.

        Only deaths that nobody ordered make the next start wait: 1, 2, 4 … 30 s, until an attempt is settled.
        """
        left = [*self.uncleaned.values(), *([self.execution] if self.execution is not None else [])]
        self.uncleaned, self.execution = {}, None
        self.state, self.start_at = "waiting", now
        if by_itself:
            self.start_at += min(LONGEST_BACKOFF, 2.0**self._failures)
            self._failures = min(self._failures + 1, 10)
        if self._link is not None:
            self._link.close()
        return left


class Slots:
    """All slots; used from the supervisor's thread only."""

    def __init__(self, crews: Iterable[SlotPool], slot_callbacks: SlotCallbacks) -> None:
        self._slots: list[Slot] = []
        for slot_pool in crews:
            first = len(self._slots)
            self._slots += [
                Slot(number, slot_pool.launch, slot_callbacks, frozenset(slot_pool.tasks))
                for number in range(first, first + slot_pool.slots)
            ]

    def idle(self, slot_pool: SlotPool) -> int:
        """How many slots of a crew wait for an attempt."""
        tasks = frozenset(slot_pool.tasks)
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
                    slot.on_exit(now, by_itself=True)
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
