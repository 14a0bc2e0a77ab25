"""The slots of a worker: each has one executor at a time, its execution, and the time of its next start.

    waiting ──start──▶ starting ──Ready──▶ idle ◀──Ended── busy
       ▲                                    └───Run──────────▶┘
       └────────── gone: it exited, died, or was killed ◀── leaving (was sent `Stop`)

Slots belong to the supervisor's thread.  The link knows what the executor is and how to reach it.
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
from perago.protocol.backoff import Backoff
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

BACKOFF = Backoff(1.0, longest=30.0)


@dataclass(slots=True, eq=False)
class Execution:
    """One run of one attempt, as the supervisor sees it."""

    id: str
    assignment: Assignment
    step: str = ""
    settled: ExecutionResult | None = None
    died: bool = False
    ending: str = ""
    """The status for the record, if the executor could not report a result."""
    started: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of each step, measured by the supervisor."""
    given: int = 0
    unsure: bool = False
    """True if a lost executor may have got further than the supervisor knows."""
    output_read: threading.Event = field(default_factory=threading.Event)

    _step_began: float = 0.0

    @property
    def attempt(self) -> Attempt:
        """The attempt that this execution runs."""
        return self.assignment.attempt

    def begin(self, step: str, now: float) -> None:
        """Begin a step and end the one before."""
        self.started = self.started or now
        self.over(now)
        self.step, self._step_began = step, now

    def over(self, now: float) -> None:
        """End the current step without starting another."""
        if self.step:
            self.seconds[self.step] = self.seconds.get(self.step, 0.0) + max(0.0, now - self._step_began)


@dataclass(frozen=True, slots=True)
class SlotCallbacks:
    """The supervisor's callbacks for slots; each may be called from any thread."""

    answered: Callable[[Slot, Answer], None]
    gone: Callable[[Slot, ExecutorExit], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one executor at a time; `uncleaned` are settled executions whose workdir may still exist."""

    number: int
    launch: ExecutorFactory
    slot_callbacks: SlotCallbacks
    tasks: frozenset[str] | None = None
    """The names of the tasks that it runs; None means all."""
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
        """Start an executor; returns how many this slot has started so far.

        If the machine lacks resources this raises and leaves nothing behind.
        """
        slot_callbacks = self.slot_callbacks
        callbacks = LinkCallbacks(
            partial(slot_callbacks.answered, self),
            partial(slot_callbacks.gone, self),
            slot_callbacks.printed,
            slot_callbacks.output_ended,
            slot_callbacks.mask,
        )
        # Set before the start: the executor may report `Ready` at any time after it.
        self.state, self.done, self.stopped_stale, self.broken = "starting", 0, False, ""
        self._link = self.launch.start(self.number, callbacks)
        self._starts += 1
        return self._starts

    def runs(self, task_name: str) -> bool:
        """Return whether this slot runs the task."""
        return self.tasks is None or task_name in self.tasks

    def ready(self) -> None:
        """Record that the executor has started and takes attempts."""
        if self.state == "starting":
            self.state = "idle"

    def give(self, execution: Execution) -> None:
        """Send an attempt to the idle executor.  If it cannot be sent this raises, and the slot stays idle."""
        execution.given += 1
        assert self._link is not None  # noqa: S101 - only a started slot is given anything
        self._link.send(Run(execution.id, execution.assignment, execution.given))
        self.execution, self.state = execution, "busy"

    def ended(self, execution_id: str, settled: ExecutionResult) -> Execution | None:
        """Record the result of the running execution.  Returns None if the slot runs another one."""
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
        """Ask the executor to finish cleaning up and exit."""
        self.state = "leaving"
        if self._link is not None:
            self._link.send(Stop())

    def kill(self) -> None:
        """Kill the executor and everything it has started."""
        self.state = "leaving"
        if self._link is not None:
            self._link.kill()

    def on_exit(self, now: float, *, by_itself: bool) -> list[Execution]:
        """Handle the executor's exit: schedule the next start and return the executions that may need cleanup.

        Only an unexpected death delays the next start: 1, 2, 4 … 30 s, until an attempt is settled.
        """
        left = [*self.uncleaned.values(), *([self.execution] if self.execution is not None else [])]
        self.uncleaned, self.execution = {}, None
        self.state, self.start_at = "waiting", now
        if by_itself:
            self._failures += 1
            self.start_at += BACKOFF.delay(self._failures)
        if self._link is not None:
            self._link.close()
        return left


class Slots:
    """All slots of a worker."""

    def __init__(self, slot_pools: Iterable[SlotPool], slot_callbacks: SlotCallbacks) -> None:
        self._slots: list[Slot] = []
        for slot_pool in slot_pools:
            first = len(self._slots)
            self._slots += [
                Slot(number, slot_pool.launch, slot_callbacks, frozenset(slot_pool.tasks))
                for number in range(first, first + slot_pool.slots)
            ]

    def idle(self, slot_pool: SlotPool) -> int:
        """Return the number of idle slots in a pool."""
        tasks = frozenset(slot_pool.tasks)
        return sum(slot.state == "idle" and slot.tasks == tasks for slot in self._slots)

    @property
    def all_gone(self) -> bool:
        """True if no executor is left."""
        return all(slot.state == "waiting" for slot in self._slots)

    def start_due(self, now: float) -> Iterator[tuple[Slot, int | Exception]]:
        """Start an executor in every slot that is due; yield each slot with its number of starts, or the error.

        After an error only that slot waits, as after a death; the others start.
        """
        for slot in self._slots:
            if slot.state == "waiting" and slot.start_at <= now:
                try:
                    yield slot, slot.start()
                except Exception as error:
                    slot.on_exit(now, by_itself=True)
                    # The traceback would keep alive what `multiprocessing` had opened.
                    yield slot, error.with_traceback(None)

    def next_start(self) -> float | None:
        """Return the time at which the next slot may start, or None."""
        return min((slot.start_at for slot in self._slots if slot.state == "waiting"), default=None)

    def hand_out(self, waiting: deque[Execution]) -> Iterator[tuple[Execution, Exception]]:
        """Send waiting executions to idle slots; yield those that cannot be sent, with the error."""
        for slot in self._slots:
            while slot.state == "idle" and (execution := _next_for(slot, waiting)) is not None:
                try:
                    slot.give(execution)
                except Exception as error:
                    yield execution, error

    def running(self, execution_id: str) -> Slot | None:
        """Return the slot that runs an execution, or None."""
        for slot in self._slots:
            if slot.execution is not None and slot.execution.id == execution_id:
                return slot
        return None

    def dismiss_idle(self) -> None:
        """Ask idle executors to exit, and kill those that are starting."""
        for slot in self._slots:
            if slot.state == "idle":
                slot.dismiss()
            elif slot.state == "starting":
                slot.kill()

    def kill_all(self) -> None:
        """Kill every executor."""
        for slot in self._alive():
            slot.kill()

    def _alive(self) -> Iterable[Slot]:
        return (slot for slot in self._slots if slot.state != "waiting")


def _next_for(slot: Slot, waiting: deque[Execution]) -> Execution | None:
    """Remove and return the first waiting execution that a slot may run, or None."""
    for execution in waiting:
        if slot.runs(execution.attempt.task_name):
            waiting.remove(execution)
            return execution
    return None
