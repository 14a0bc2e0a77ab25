"""What an author's code prints and logs while it runs in a trial, as lines.

The rule: capturing takes nothing away.  What is printed still reaches the stream that was there, and what is logged still
reaches the handlers, so a test runner shows both as it always does.  What a child process or a C library writes to the
descriptors is not seen here: a JVM that starts meanwhile would keep a pipe in their place for its whole life.

Attempts of one trial, one after the other, by production's own transaction and delivery.

The rule: only what happens around an attempt is a test's.  A crash leaves the transaction where it stands and cleans
nothing up; a lost lease is time that passes; a head that moves is a commit.  The clock stands still otherwise, so no lease
runs out by itself however slow the machine is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from perago.declare.task import TaskDefinition
from perago.errors import TrialError
from perago.orchestrator.base import Assignment, TaskState, WorkflowState
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.contract import given_workspaces
from perago.runtime.attempt.delivery import Executor
from perago.runtime.observe.logs import BodyLogs, handlers_on_the_way
from perago.runtime.process.process_state import preserving_process_state
from perago.testing.clock import Clock
from perago.testing.environment import Bench
from perago.testing.faults import At, Crash, Crashed, HeadMove, LostLease
from perago.testing.lake import TrialLake
from perago.testing.results import TrialAttempt


class _Tee:
    """A stream that keeps the lines written to it, and is otherwise the stream that it stands for."""

    def __init__(self, stream: Any, lines: list[str]) -> None:
        self._stream = stream
        self._lines = lines
        self._rest = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write on, and keep the lines that are whole."""
        written = self._stream.write(text)
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines.extend(whole)
        return int(written)

    def writelines(self, texts: Any) -> None:
        """Write several texts."""
        for text in texts:
            self.write(text)

    def finish(self) -> None:
        """Keep a last line that was not ended."""
        if self._rest:
            self._lines.append(self._rest)
            self._rest = ""


class _Logged(BodyLogs):
    """Keeps what is logged as production would word it, unless a handler has just printed it to one of our streams."""

    def __init__(self, lines: list[str], tees: tuple[_Tee, ...]) -> None:
        super().__init__(lambda text: lines.extend(text.removesuffix("\n").split("\n")), running=lambda: True)
        self._tees = tees

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Whether one of our streams has it already."""
        streams = [getattr(handler, "stream", None) for handler in handlers_on_the_way(record)]
        return any(stream is tee for stream in streams for tee in self._tees)


@contextmanager
def captured(lines: list[str]) -> Iterator[None]:
    """Add to `lines` what is printed and logged for as long as the block runs."""
    before = sys.stdout, sys.stderr
    tees = _Tee(before[0], lines), _Tee(before[1], lines)
    root, handler = logging.getLogger(), _Logged(lines, tees)
    level = root.level
    sys.stdout, sys.stderr = tees
    root.addHandler(handler)
    # As in a worker: what bodies log from INFO on is theirs to see.
    root.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        root.removeHandler(handler)
        root.setLevel(level)
        for tee in tees:
            tee.finish()


WORKER = "trial"
LONGEST_RATE_LIMIT = 86_400
"""Seconds of the trial's clock after which a task that its rate limit holds back is given up."""


@dataclass(slots=True)
class _Seen:
    """What one attempt has shown so far."""

    lines: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    error: BaseException | None = None
    outcome: Outcome | None = None
    crashed: bool = False
    wrong: Exception | None = None
    """Why what was to happen could not: an error of the test, not of the attempt."""


class Runner:
    """Runs the attempts that an orchestrator hands out; `at` has what is to happen, by reference name and step."""

    def __init__(
        self,
        bench: Bench,
        orchestrator: LocalOrchestrator,
        tasks: Sequence[TaskDefinition],
        at: Mapping[str, At],
        clock: Clock,
    ) -> None:
        self._bench = bench
        self._orchestrator = orchestrator
        self._tasks = {task.name: task for task in tasks}
        self._around = bench.around(orchestrator, tasks)
        self._at = at
        self._clock = clock
        self._happened: set[tuple[str, str]] = set()
        self.ran: list[tuple[str, TrialAttempt]] = []
        """Every attempt so far, with its step's reference name."""

    def attempts_of(self, reference: str) -> tuple[TrialAttempt, ...]:
        """The attempts of one step."""
        return tuple(attempt for step, attempt in self.ran if step == reference)

    def run_next(self, state: WorkflowState) -> bool:
        """Run the attempt that can be polled soonest, at once whatever the clock says; False where there is none."""
        waiting = [task for task in state.tasks if task.status == "SCHEDULED"]
        if not waiting:
            return False
        soonest = min(waiting, key=lambda task: (task.available, task.seq))
        self._clock.sleep(max(0.0, soonest.available - self._clock.now))
        self._run(self._polled(soonest))
        return True

    def expect_all_happened(self) -> None:
        """Refuse a trial in which something that was to happen has not: it shows nothing of what it is for."""
        for reference, at in self._at.items():
            for step in at:
                if (reference, step) not in self._happened:
                    took = [name for attempt in self.attempts_of(reference) for name in attempt.steps]
                    taken = f"it took {', '.join(dict.fromkeys(took))}" if took else "it never ran"
                    raise TrialError(
                        f"nothing happened at step {step!r} of {reference!r}, because the attempt never came to it: {taken}"
                    )

    def _polled(self, task: TaskState) -> Assignment:
        for _ in range(LONGEST_RATE_LIMIT):
            polled = self._orchestrator.poll(task.task_name, worker_id=WORKER, count=1, wait_seconds=0)
            if polled:
                return polled[0]
            self._clock.sleep(1.0)
        raise TrialError(f"task {task.task_name!r} is held back by its own limits for more than a day")

    def _run(self, assignment: Assignment) -> None:
        seen = _Seen()
        attempt = assignment.attempt
        try:
            seen.outcome = self._executor(assignment, seen).execute(assignment).outcome
        except Crashed as crashed:
            if seen.wrong is not None:
                raise TrialError(
                    f"what is to happen at {seen.steps[-1]!r} cannot: {seen.wrong}"
                ) from seen.wrong
            seen.error = crashed
            # Nobody extends the lease any more.
            self._clock.sleep(attempt.response_timeout_seconds)
        state = self._orchestrator.workflow(attempt.workflow_instance_id)
        task = next(task for task in state.tasks if task.task_id == attempt.task_id)
        # The orchestrator has the reason within its bounds; the whole of it is better in a test.
        accepted = seen.outcome is not None and seen.outcome.status == task.status
        reason = seen.outcome.reason if seen.outcome is not None and accepted else task.reason
        done = TrialAttempt(task.status, reason, seen.error, tuple(seen.lines), tuple(seen.steps))
        self.ran.append((attempt.reference_task_name, done))

    def _executor(self, assignment: Assignment, seen: _Seen) -> Executor:
        def begin(step: str) -> None:
            if step not in seen.steps:
                seen.steps.append(step)
                self._let_happen(step, assignment, seen)

        def failed(error: Exception) -> None:
            seen.error = error

        def clean_up(cleanup: ExitStack) -> None:
            # Who crashed cleans nothing up, and no call to a port is on the way: steps begin between calls.
            if not seen.crashed:
                cleanup.close()

        @contextmanager
        def watched() -> Iterator[None]:
            with captured(seen.lines), preserving_process_state():
                yield

        around = replace(
            self._around, observe=begin, on_error=failed, preserving_process_state=watched, clean_up=clean_up
        )
        return Executor(self._tasks, around, WORKER, mask=str)

    def _let_happen(self, step: str, assignment: Assignment, seen: _Seen) -> None:
        reference = assignment.attempt.reference_task_name
        incident = self._at.get(reference, {}).get(step)
        if incident is None or assignment.attempt.retry_count >= incident.tries:
            return
        self._happened.add((reference, step))
        match incident:
            case Crash():
                seen.crashed = True
                raise Crashed(f"the worker was made to crash at step {step!r}")
            case LostLease():
                self._clock.sleep(assignment.attempt.response_timeout_seconds)
            case HeadMove():
                try:
                    self._move_head(incident, assignment)
                except Exception as error:
                    seen.wrong, seen.crashed = error, True
                    raise Crashed from error

    def _move_head(self, move: HeadMove, assignment: Assignment) -> None:
        task = self._tasks[assignment.attempt.task_name]
        given = given_workspaces(assignment.input["workspace"])[0]
        prefix = "" if task.workspace is None else task.workspace.object_prefix
        path = move.path[1:] if move.path.startswith("/") else prefix + move.path
        lake = TrialLake(self._bench.lake, self._bench.uploads, given["repository"])
        lake.change({path: move.content}, branch=given["branch"], by=move.by)
