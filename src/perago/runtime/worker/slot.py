"""One slot of a worker: an executor, what it is doing, and when the next one may take its place.

    waiting ──start──▶ starting ──Ready──▶ idle ◀──Ended── busy
       ▲                                    └───Run──────────▶┘
       └────────── gone: it left, died, or was killed ◀── leaving (told to stop)

A slot belongs to the supervisor's thread.  What its executor is, and how it is reached, is its link's matter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.runtime.ending import Settled
from perago.runtime.observe.masking import Masker
from perago.runtime.worker.links import Departure, Ears, Launch, Link
from perago.runtime.worker.messages import Answer, Run, Stop
from perago.runtime.worker.output import Sink

State = Literal["waiting", "starting", "idle", "busy", "leaving"]

LONGEST_BACKOFF = 30.0


@dataclass(slots=True, eq=False)
class Execution:
    """One run of one attempt, as the supervisor follows it."""

    id: str
    assignment: Assignment
    step: str = ""
    settled: Settled | None = None
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
class Wiring:
    """How slots reach the supervisor; all of it may be called from any thread."""

    answered: Callable[[Slot, Answer], None]
    gone: Callable[[Slot, Departure], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


@dataclass(slots=True, eq=False)
class Slot:
    """One executor at a time; `uncleaned` are settled executions whose workdir may still be there."""

    number: int
    launch: Launch
    wiring: Wiring
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
        wiring = self.wiring
        ears = Ears(
            partial(wiring.answered, self),
            partial(wiring.gone, self),
            wiring.printed,
            wiring.output_ended,
            wiring.mask,
        )
        # Before the start: one that is there at once may say so at once.
        self.state, self.done, self.stopped_stale, self.broken = "starting", 0, False, ""
        self._link = self.launch.start(self.number, ears)
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

    def ended(self, execution_id: str, settled: Settled) -> Execution | None:
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

    def bury(self, now: float, *, by_itself: bool) -> list[Execution]:
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
