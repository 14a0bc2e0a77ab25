"""One slot of a worker: an executor process, what it is doing, and when the next one may take its place.

    waiting ──start──▶ starting ──Ready──▶ idle ◀──Ended── busy
       ▲                                    └───Run──────────▶┘
       └────────── gone: it left, died, or was killed ◀── leaving (told to stop)

A slot belongs to the supervisor's thread.  Each executor has a listener thread that passes on what it says and, as the
last thing, how it left; so an answer is always seen before the death of who gave it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Literal

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.runtime.ending import Settled
from perago.runtime.observe.masking import Masker
from perago.runtime.worker.executor import ExecutorSpec, run_executor
from perago.runtime.worker.messages import Answer, Request, Run, Stop
from perago.runtime.worker.output import OutputReader, Sink

log = logging.getLogger("perago.slot")

State = Literal["waiting", "starting", "idle", "busy", "leaving"]

LONGEST_BACKOFF = 30.0
_spawn = multiprocessing.get_context("spawn")


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
    """How slots reach the supervisor; both may be called from any thread."""

    answered: Callable[[Slot, Answer], None]
    gone: Callable[[Slot, int], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


@dataclass(slots=True, eq=False)
class Slot:
    """One executor at a time; `uncleaned` are settled executions whose workdir may still be there."""

    number: int
    spec: ExecutorSpec
    wiring: Wiring
    state: State = "waiting"
    execution: Execution | None = None
    uncleaned: dict[str, Execution] = field(default_factory=dict)
    start_at: float = 0.0
    done: int = 0
    stopped_stale: bool = False
    broken: str = ""
    _starts: int = 0
    _failures: int = 0
    _process: SpawnProcess | None = None
    _pipe: Connection | None = None

    def start(self) -> int:
        """Start an executor process; returns how many this slot has had with it.

        A machine that has no room for one (descriptors, memory, processes, threads) raises whatever it raises, and
        nothing is left of the try.
        """
        with ExitStack() as undo, ExitStack() as handed_over:
            ours, theirs = _spawn.Pipe()
            undo.callback(ours.close)
            handed_over.callback(theirs.close)
            output = OutputReader(
                self.wiring.printed, self.wiring.mask, name=str(self.number), ended=self.wiring.output_ended
            )
            handed_over.callback(output.handed_over)
            theirs_out = Connection(os.dup(output.write_fd), readable=False)
            handed_over.callback(theirs_out.close)
            # Here and not on the listener's thread, where nobody would hear that there is none to be had.
            news = undo.enter_context(selectors.DefaultSelector())
            process = _spawn.Process(
                target=run_executor,
                args=(self.spec, self.number, theirs, theirs_out),
                name=f"perago-executor-{self.number}",
            )
            process.start()
            undo.callback(_end, process)
            # Opened here, where nothing can have reaped the process yet.
            death = _death_of(process)
            if death != process.sentinel:
                undo.callback(os.close, death)
            news.register(ours, selectors.EVENT_READ)
            news.register(death, selectors.EVENT_READ)
            threading.Thread(
                target=self._listen,
                args=(process, death, ours, news),
                name=f"perago-slot-{self.number}",
                daemon=True,
            ).start()
            undo.pop_all()
        self._process, self._pipe = process, ours
        self.state, self.done, self.stopped_stale, self.broken = "starting", 0, False, ""
        self._starts += 1
        return self._starts

    def ready(self) -> None:
        """The executor has started and takes attempts."""
        if self.state == "starting":
            self.state = "idle"

    def give(self, execution: Execution) -> None:
        """Hand an attempt to the idle executor; one that cannot be handed over raises, and leaves the slot idle."""
        execution.given += 1
        self._send(Run(execution.id, execution.assignment))
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
        self._send(Stop())

    def kill(self) -> None:
        """End the executor and everything it has started, now."""
        self.state = "leaving"
        if self._process is not None and self._process.pid is not None:
            _kill_group(self._process.pid)

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
        if self._pipe is not None:
            self._pipe.close()
        return left

    def _send(self, request: Request) -> None:
        assert self._pipe is not None  # noqa: S101 - only a started slot is sent anything
        # A broken pipe means that the executor is dead: its listener says so next.
        with contextlib.suppress(OSError):
            self._pipe.send(request)

    def _listen(
        self, process: SpawnProcess, death: int, pipe: Connection, news: selectors.BaseSelector
    ) -> None:
        assert process.pid is not None  # noqa: S101 - it was started
        # One selector for all answers: `wait` would make one for each.
        with news:
            while all(key.fileobj is pipe for key, _ in news.select()) and self._pass_on(pipe, process.pid):
                pass
        wait([death])
        # What it said last may have come together with its death.
        while pipe.poll() and self._pass_on(pipe, process.pid):
            pass
        _kill_group(process.pid)
        process.join()
        if death != process.sentinel:
            os.close(death)
        self.wiring.gone(self, _exit_code(process))

    def _pass_on(self, pipe: Connection, pid: int) -> bool:
        try:
            answer = pipe.recv()
        except (EOFError, OSError):
            return False
        except Exception:
            # Something else has written into the pipe: what it says from now on cannot be told apart.
            log.exception("what executor %d says cannot be read: it is killed", self.number)
            _kill_group(pid)
            return False
        self.wiring.answered(self, answer)
        return True


def _end(process: SpawnProcess) -> None:
    """Undo the start of a process that nobody listens to."""
    _kill_group(process.pid or 0)
    process.join()


def _death_of(process: SpawnProcess) -> int:
    """Something to wait on that is ready when the process is dead.

    Not the process's own sentinel where there is better: a child that the body forked holds that open.
    """
    return os.pidfd_open(process.pid or 0) if hasattr(os, "pidfd_open") else process.sentinel


def _exit_code(process: SpawnProcess) -> int:
    while process.exitcode is None:
        # Another thread that starts a process has reaped this one and is about to say so.
        time.sleep(0.001)
    return process.exitcode


def _kill_group(pid: int) -> None:
    """Kill an executor and what it started; it is not reaped yet, so the number is still its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_exit(exit_code: int) -> str:
    """An exit code for people: the signal's name, or the code."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
