"""Runs the attempts of one trial, one after the other, with the same transaction and delivery code as in production.

Faults are simulated: a crash abandons the transaction without any cleanup, a lost lease advances the clock, and a head
move is a commit.  Otherwise the clock stands still, so a slow machine never loses a lease.

Output of user code is captured as lines, and still reaches the original streams and handlers.  Output that a child
process or a C library writes to the file descriptors is not captured: a JVM started in the meantime would keep the pipe
open forever.
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
from perago.protocol.ledger import NOTHING_FORCED, Recompute
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.contract import given_workspaces
from perago.runtime.attempt.delivery import Executor
from perago.runtime.observe.logs import BodyLogs, handlers_on_the_way
from perago.runtime.process.process_state import preserving_process_state
from perago.testing.environment import Clock, TrialEnvironment
from perago.testing.faults import Crash, Crashed, Faults, HeadMove, LostLease
from perago.testing.lake import TrialLake
from perago.testing.results import TrialAttempt


class _Tee:
    """A stream that records the lines written to it and otherwise behaves like the stream it wraps."""

    def __init__(self, stream: Any, lines: list[str]) -> None:
        self._stream = stream
        self._lines = lines
        self._rest = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write to the wrapped stream, and record complete lines."""
        written = self._stream.write(text)
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines.extend(whole)
        return int(written)

    def writelines(self, texts: Any) -> None:
        """Write several strings."""
        for text in texts:
            self.write(text)

    def finish(self) -> None:
        """Record the last line if it has no newline."""
        if self._rest:
            self._lines.append(self._rest)
            self._rest = ""


class _Logged(BodyLogs):
    """Captures log records as lines, in the same format as a worker.

    Records that another handler writes to a captured stream are skipped, so that they do not appear twice.
    """

    def __init__(self, lines: list[str], tees: tuple[_Tee, ...]) -> None:
        super().__init__(lambda text: lines.extend(text.removesuffix("\n").split("\n")), running=lambda: True)
        self._tees = tees

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Return whether another handler writes the record to a captured stream."""
        streams = [getattr(handler, "stream", None) for handler in handlers_on_the_way(record)]
        return any(stream is tee for stream in streams for tee in self._tees)


@contextmanager
def capture_output(lines: list[str]) -> Iterator[None]:
    """Append everything that is printed and logged inside the block to `lines`."""
    before = sys.stdout, sys.stderr
    tees = _Tee(before[0], lines), _Tee(before[1], lines)
    root, handler = logging.getLogger(), _Logged(lines, tees)
    level = root.level
    sys.stdout, sys.stderr = tees
    root.addHandler(handler)
    # As in a worker, bodies log at level INFO and higher.
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
"""Seconds on the trial's clock after which the runner gives up on a rate-limited task."""


@dataclass(slots=True)
class _Observed:
    """Everything that the runner observes about one attempt."""

    lines: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    error: BaseException | None = None
    outcome: Outcome | None = None
    crashed: bool = False
    injection_error: Exception | None = None
    """The error raised because a fault could not be injected. The test is wrong, not the attempt."""


class Runner:
    """Runs the attempts that an orchestrator assigns.

    `faults` is keyed by the reference name of a workflow step, and then by the name of a step of its attempts.
    """

    def __init__(
        self,
        environment: TrialEnvironment,
        orchestrator: LocalOrchestrator,
        tasks: Sequence[TaskDefinition],
        faults: Mapping[str, Faults],
        clock: Clock,
        *,
        recompute: Recompute = NOTHING_FORCED,
    ) -> None:
        self._environment = environment
        self._orchestrator = orchestrator
        self._tasks = {task.name: task for task in tasks}
        self._context = replace(environment.context(orchestrator, tasks), recompute=recompute)
        self._faults = faults
        self._clock = clock
        self._fired: set[tuple[str, str]] = set()
        self.ran: list[tuple[str, TrialAttempt]] = []
        """Every attempt that has run so far, with the reference name of its step."""

    def attempts_of(self, reference: str) -> tuple[TrialAttempt, ...]:
        """Return the attempts of one step."""
        return tuple(attempt for step, attempt in self.ran if step == reference)

    def run_next(self, state: WorkflowState) -> bool:
        """Run the next scheduled attempt without waiting. Returns False if there is none."""
        waiting = [task for task in state.tasks if task.status == "SCHEDULED"]
        if not waiting:
            return False
        soonest = min(waiting, key=lambda task: (task.available, task.seq))
        self._clock.sleep(max(0.0, soonest.available - self._clock.now))
        self._run(self._polled(soonest))
        return True

    def expect_all_fired(self) -> None:
        """Raise `TrialError` if an injected fault never fired."""
        for reference, faults in self._faults.items():
            for step in faults:
                if (reference, step) not in self._fired:
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
        observed = _Observed()
        attempt = assignment.attempt
        try:
            observed.outcome = self._executor(assignment, observed).execute(assignment).outcome
        except Crashed as crashed:
            if observed.injection_error is not None:
                raise TrialError(
                    f"what is to happen at {observed.steps[-1]!r} cannot: {observed.injection_error}"
                ) from observed.injection_error
            observed.error = crashed
            # The lease is no longer extended, so it expires.
            self._clock.sleep(attempt.response_timeout_seconds)
        state = self._orchestrator.workflow(attempt.workflow_instance_id)
        task = next(task for task in state.tasks if task.task_id == attempt.task_id)
        # The orchestrator truncates long reasons, but a test gets the whole text.
        accepted = observed.outcome is not None and observed.outcome.status == task.status
        reason = observed.outcome.reason if observed.outcome is not None and accepted else task.reason
        done = TrialAttempt(task.status, reason, observed.error, tuple(observed.lines), tuple(observed.steps))
        self.ran.append((attempt.reference_task_name, done))

    def _executor(self, assignment: Assignment, observed: _Observed) -> Executor:
        def begin(step: str) -> None:
            if step not in observed.steps:
                observed.steps.append(step)
                self._inject(step, assignment, observed)

        def failed(error: Exception) -> None:
            observed.error = error

        def clean_up(cleanup: ExitStack) -> None:
            # A crashed worker cleans up nothing. No call to the lake or the orchestrator is in flight here, because
            # steps begin between calls.
            if not observed.crashed:
                cleanup.close()

        @contextmanager
        def capturing() -> Iterator[None]:
            with capture_output(observed.lines), preserving_process_state():
                yield

        context = replace(
            self._context,
            observe=begin,
            on_error=failed,
            preserving_process_state=capturing,
            clean_up=clean_up,
        )
        return Executor(self._tasks, context, WORKER, mask=str)

    def _inject(self, step: str, assignment: Assignment, observed: _Observed) -> None:
        reference = assignment.attempt.reference_task_name
        fault = self._faults.get(reference, {}).get(step)
        if fault is None or assignment.attempt.retry_count >= fault.tries:
            return
        self._fired.add((reference, step))
        match fault:
            case Crash():
                observed.crashed = True
                raise Crashed(f"the worker was made to crash at step {step!r}")
            case LostLease():
                self._clock.sleep(assignment.attempt.response_timeout_seconds)
            case HeadMove():
                try:
                    self._move_head(fault, assignment)
                except Exception as error:
                    observed.injection_error, observed.crashed = error, True
                    raise Crashed from error

    def _move_head(self, move: HeadMove, assignment: Assignment) -> None:
        task = self._tasks[assignment.attempt.task_name]
        given = given_workspaces(assignment.input["workspace"])[0]
        prefix = "" if task.workspace is None else task.workspace.object_prefix
        path = move.path[1:] if move.path.startswith("/") else prefix + move.path
        lake = TrialLake(self._environment.lake, self._environment.uploads, given["repository"])
        lake.change({path: move.content}, branch=given["branch"], by=move.by)
