"""A worker's slots.  Each one has at most one executor and one running execution, and a time for its next start.

    waiting ──start──▶ starting ──Ready──▶ idle ◀──Ended── busy
       ▲                                    └───Run──────────▶┘
       └────────── gone: it exited, died, or was killed ◀── leaving (was sent `Stop`)

Slots are used only on the supervisor's thread.  A slot's link knows what kind of executor it has and how to reach it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from perago.protocol.backoff import Backoff
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.worker.executions import Execution, Executions
from perago.runtime.worker.executor_protocol import ExecutorFactory, Link, Run, Stop
from perago.runtime.worker.inbox import Inbox
from perago.runtime.worker.plan import SlotPool

State = Literal["waiting", "starting", "idle", "busy", "leaving"]

BACKOFF = Backoff(1.0, longest=30.0)


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one executor at a time.  `uncleaned` contains ended executions whose workdir may still exist."""

    number: int
    launch: ExecutorFactory
    inbox: Inbox
    executions: Executions
    tasks: frozenset[str] | None = None
    """The names of the tasks that this slot runs; None means all of them."""
    state: State = "waiting"
    execution: Execution | None = None
    uncleaned: dict[str, Execution] = field(default_factory=dict)
    start_at: float = 0.0
    done: int = 0
    stopped_stale: bool = False
    broken: str = ""
    backoff: Backoff = BACKOFF
    """The delays before an executor is started again after unexpected deaths."""
    _starts: int = 0
    _failures: int = 0
    _link: Link | None = None

    def start(self) -> int:
        """Start an executor and return how many this slot has started so far.

        Raises if the machine is out of resources; nothing is left behind in that case.
        """
        # Set the state first: the executor may report `Ready` as soon as it has been started.
        self.state, self.done, self.stopped_stale, self.broken = "starting", 0, False, ""
        self._link = self.launch.start(self.number, self.inbox, self.executions)
        self._starts += 1
        return self._starts

    def runs(self, task_name: str) -> bool:
        """Return whether this slot runs the task."""
        return self.tasks is None or task_name in self.tasks

    def ready(self) -> None:
        """Record that the executor has started and accepts attempts."""
        if self.state == "starting":
            self.state = "idle"

    def give(self, execution: Execution) -> None:
        """Send an attempt to the idle executor.  Raises if it cannot be sent; the slot then stays idle."""
        execution.handouts += 1
        assert self._link is not None  # noqa: S101 - only started slots are given attempts
        self._link.send(Run(execution.id, execution.assignment, execution.handouts))
        self.execution, self.state = execution, "busy"

    def end_execution(self, execution_id: str, result: ExecutionResult) -> Execution | None:
        """Record the result of an execution and return the execution, or None if the slot is not running it."""
        execution = self.execution
        if execution is None or execution.id != execution_id:
            return None
        execution.result = result
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

        Only an unexpected death delays the next start, by default by 1, 2, 4 … 30 s.  An attempt that ends with
        a result resets the delay.
        """
        left = [*self.uncleaned.values(), *([self.execution] if self.execution is not None else [])]
        self.uncleaned, self.execution = {}, None
        self.state, self.start_at = "waiting", now
        if by_itself:
            self._failures += 1
            self.start_at += self.backoff.delay(self._failures)
        if self._link is not None:
            self._link.close()
        return left


class Slots:
    """All slots of a worker."""

    def __init__(
        self,
        slot_pools: Iterable[SlotPool],
        inbox: Inbox,
        executions: Executions,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._slots: list[Slot] = []
        for slot_pool in slot_pools:
            first = len(self._slots)
            self._slots += [
                Slot(number, slot_pool.launch, inbox, executions, frozenset(slot_pool.tasks), backoff=backoff)
                for number in range(first, first + slot_pool.slots)
            ]

    def __getitem__(self, number: int) -> Slot:
        """Return the slot with this number."""
        return self._slots[number]

    def idle(self, slot_pool: SlotPool) -> int:
        """Return the number of idle slots in a pool."""
        tasks = frozenset(slot_pool.tasks)
        return sum(slot.state == "idle" and slot.tasks == tasks for slot in self._slots)

    @property
    def all_gone(self) -> bool:
        """True if no executor is left."""
        return all(slot.state == "waiting" for slot in self._slots)

    def start_due(self, now: float) -> Iterator[tuple[Slot, int | Exception]]:
        """Start an executor in every slot whose next start is due.

        Yields each slot with the number of executors that it has started, or with the error.  An error delays only the
        slot in which it occurred, like an executor's death.  The other slots still start.
        """
        for slot in self._slots:
            if slot.state == "waiting" and slot.start_at <= now:
                try:
                    yield slot, slot.start()
                except Exception as error:
                    slot.on_exit(now, by_itself=True)
                    # The traceback would keep alive any resources that `multiprocessing` opened.
                    yield slot, error.with_traceback(None)

    def next_start(self) -> float | None:
        """Return the earliest time at which a slot may start an executor, or None if no slot is waiting."""
        return min((slot.start_at for slot in self._slots if slot.state == "waiting"), default=None)

    def hand_out(self, waiting: deque[Execution]) -> Iterator[tuple[Execution, Exception]]:
        """Send waiting executions to idle slots.  Yields those that cannot be sent, each with its error."""
        for slot in self._slots:
            while slot.state == "idle" and (execution := _next_for(slot, waiting)) is not None:
                try:
                    slot.give(execution)
                except Exception as error:
                    yield execution, error

    def running(self, execution_id: str) -> Slot | None:
        """Return the slot that is running an execution, or None."""
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
