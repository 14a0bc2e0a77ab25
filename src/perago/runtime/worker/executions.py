"""Tracks the attempts in flight.  Each one is an execution, with a lease, a task log and events from poll to end.

The task log of every execution ends with the user traceback, if any, and the record that `perago show` reads:

    status                        how the execution ended
    COMPLETED, FAILED,            as its outcome says
      FAILED_WITH_TERMINAL_ERROR,
      LOST_TO_TWIN
    DIED                          its executor died at `step`; the seconds are those measured by the supervisor
    STOPPED                       the orchestrator had moved on, or the worker was forced to stop

Secrets are masked in the individual texts, not in the finished record line: masking the line could break its JSON or make
it too long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from perago.declare.task import TaskDefinition
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import AttemptRecord, record_line
from perago.protocol.provenance import packages_lines
from perago.protocol.steps import PUBLISH
from perago.runtime.execution_result import ExecutionResult, Observations
from perago.runtime.observe.events import Event, Kind, Listener
from perago.runtime.observe.logs import attempt_fields
from perago.runtime.observe.sanitize import Masker
from perago.runtime.root.state_dir import new_execution_id
from perago.runtime.worker.in_flight import InFlightFiles, in_flight_of
from perago.runtime.worker.leases import LeaseKeeper, lease_interval
from perago.runtime.worker.task_logs import TaskLogs

log = logging.getLogger("perago.attempts")
output_log = logging.getLogger("perago.output")
supervisor_log = logging.getLogger("perago.supervisor")

DIED = "DIED"
STOPPED = "STOPPED"
READ_SECONDS = 2.0
LOG_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Execution:
    """One run of one attempt, as the supervisor sees it."""

    id: str
    assignment: Assignment
    step: str = ""
    result: ExecutionResult | None = None
    died: bool = False
    ending: str = ""
    """The final status for the execution's record, set if the executor could not report a result."""
    started: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of each step, measured by the supervisor."""
    handouts: int = 0
    unsure: bool = False
    """True if a lost executor may have got further than the supervisor knows."""
    output_read: threading.Event = field(default_factory=threading.Event)

    _step_began: float = 0.0

    @property
    def attempt(self) -> Attempt:
        """The attempt that this execution runs."""
        return self.assignment.attempt

    def begin(self, step: str, now: float) -> None:
        """End the current step, if any, and begin the next one."""
        self.started = self.started or now
        self.end_step(now)
        self.step, self._step_began = step, now

    def end_step(self, now: float) -> None:
        """End the current step without starting another."""
        if self.step:
            self.seconds[self.step] = self.seconds.get(self.step, 0.0) + max(0.0, now - self._step_began)


class Executions:
    """The executions in flight: those that were polled and have no accepted result yet."""

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        leases: LeaseKeeper,
        task_logs: TaskLogs,
        *,
        worker_id: str = "",
        mask: Masker | None = None,
        in_flight: InFlightFiles | None = None,
    ) -> None:
        self._tasks = tasks
        self._leases = leases
        self._task_logs = task_logs
        self._worker_id = worker_id
        self.mask = mask or Masker([])
        self._in_flight = in_flight
        self._executions: dict[str, Execution] = {}

    def __len__(self) -> int:
        return len(self._executions)

    def admit(self, assignment: Assignment) -> Execution:
        """Begin an execution of a polled attempt under a new id.  Its lease is extended from now on."""
        execution = Execution(new_execution_id(), assignment)
        self._executions[execution.id] = execution
        self._record(execution)
        self._task_logs.begin(execution.id, assignment.attempt)
        self.keep_lease(execution.id, assignment.attempt)
        return execution

    def get(self, execution_id: str) -> Execution | None:
        """Return the execution, or None if it is not in flight.  Thread-safe."""
        return self._executions.get(execution_id)

    def has(self, execution_id: str) -> bool:
        """Return whether the execution is in flight.  Thread-safe."""
        return execution_id in self._executions

    def stop(self, execution: Execution, ending: str, *, attempt_open: bool = False) -> None:
        """End an execution that is no longer running in any process.

        No result is sent; only the task log records how the execution ended.  If its attempt is still open, the next
        worker on this root reports it.
        """
        execution.ending = ending
        execution.end_step(time.time())
        self._end_log(execution, timeout=0.0)
        self._forget(execution.id)
        if not attempt_open:
            self._drop_record(execution.id)

    def note_step(self, execution: Execution) -> None:
        """Record that the execution holds its attempt's claim, once it has begun to publish."""
        if execution.step == PUBLISH.name:
            self._record(execution, claimed=True)

    def steps(self) -> list[str]:
        """Return the reference names of the workflow steps that are in flight and have no result yet."""
        running = [execution for execution in self._executions.values() if execution.result is None]
        return sorted({execution.attempt.reference_task_name for execution in running})

    def end(self, execution_id: str) -> Execution | None:
        """End an execution: stop extending its lease and close its task log."""
        self._drop_record(execution_id)
        return self._forget(execution_id)

    def let_go(self, execution_id: str) -> None:
        """Stop extending an execution's lease, although the execution stays in flight."""
        self._leases.let_go(execution_id)

    def keep_lease(self, execution_id: str, attempt: Attempt) -> None:
        """Extend the lease of an attempt until `end` or `let_go` is called."""
        interval = lease_interval(self._tasks.get(attempt.task_name), attempt.response_timeout_seconds)
        self._leases.keep(execution_id, attempt, interval)

    def on_line(self, execution_id: str, line: str) -> None:
        """Record a line that a body printed.  Thread-safe."""
        execution = self.get(execution_id)
        self._task_logs.add(execution_id, line)
        output_log.info("%s", line, extra=fields_of(execution) if execution is not None else None)

    def on_output_end(self, execution_id: str) -> None:
        """Record that all output of an execution has been read.  Thread-safe."""
        execution = self.get(execution_id)
        if execution is not None:
            execution.output_read.set()

    def finish_log(self, execution: Execution) -> None:
        """Complete an execution's task log.  Thread-safe.

        Waits at most a few seconds, first for the rest of the output and then for the server.
        """
        execution.output_read.wait(READ_SECONDS)
        self._end_log(execution, timeout=LOG_SECONDS)

    def _forget(self, execution_id: str) -> Execution | None:
        self._leases.let_go(execution_id)
        self._task_logs.finish(execution_id)
        return self._executions.pop(execution_id, None)

    def _record(self, execution: Execution, *, claimed: bool = False) -> None:
        if self._in_flight is None:
            return
        task = self._tasks.get(execution.attempt.task_name)
        may_publish = task is not None and task.workspace is not None and not task.workspace.read_only
        record = in_flight_of(execution.id, execution.assignment, self._worker_id, may_publish=may_publish)
        self._in_flight.put(replace(record, claimed=claimed))

    def _drop_record(self, execution_id: str) -> None:
        if self._in_flight is not None:
            self._in_flight.drop(execution_id)

    def _end_log(self, execution: Execution, *, timeout: float) -> None:
        seen = execution.result.seen if execution.result is not None else Observations()
        for line in seen.trace:
            self._task_logs.add(execution.id, self.mask(line))
        for line in packages_lines(seen.packages):
            self._task_logs.add(execution.id, line)
        record = _record_line(execution, self._worker_id, self.mask)
        self._task_logs.finish(execution.id, record=record, timeout=timeout)


class EventPublisher:
    """Passes events to the worker's only listener.  A failing listener never stops the worker."""

    def __init__(self) -> None:
        self._listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Pass events to this listener from now on."""
        self._listener = listener

    def publish(self, event: Event) -> None:
        """Pass an event to the listener.  If the listener raises, the error is logged."""
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            supervisor_log.exception("event listener failed on %r", event.kind)

    def publish_for(self, kind: Kind, execution: Execution, *, text: str = "") -> None:
        """Publish an event about an execution."""
        about = (execution.attempt, execution.id, execution.step, execution.result)
        self.publish(Event(kind, *about, text=text, assignment=execution.assignment))


def log_result(execution: Execution) -> None:
    """Log how an execution ended, with the user traceback if user code raised."""
    if (result := execution.result) is None:
        return
    outcome, trace = result.outcome, "\n".join(result.seen.trace)
    message: str = outcome.status
    if outcome.reason is not None:
        # The rest of the reason is at the end of the traceback.
        reason = outcome.reason.partition("\n")[0] if trace else outcome.reason
        message += f" at step {result.step!r}: {reason}"
    level = logging.INFO if outcome.status == "COMPLETED" else logging.WARNING
    log.log(level, "%s", message, extra={**fields_of(execution), "trace": trace})


def fields_of(execution: Execution) -> dict[str, object]:
    """Return the log fields that identify an execution."""
    return {"attempt": attempt_fields(execution.attempt, execution.id)}


def _record_line(execution: Execution, worker_id: str, mask: Masker) -> str:
    """Return the execution's record, formatted as the last line of its task log."""
    record = AttemptRecord(
        execution=execution.id,
        status=execution.ending,
        step=execution.step,
        started=round(execution.started, 3),
        seconds=execution.seconds,
        worker=worker_id,
    )
    if execution.result is not None:
        record = _with_result(record, execution.result)
    checks = tuple(
        replace(check, label=mask(check.label), found=mask(check.found)) for check in record.checks
    )
    spark = record.spark
    if spark is not None:
        longest = tuple(replace(stage, name=mask(stage.name)) for stage in spark.longest)
        spark = replace(spark, longest=longest)
    return record_line(replace(record, checks=checks, spark=spark))


def _with_result(record: AttemptRecord, result: ExecutionResult) -> AttemptRecord:
    seen, moved = result.seen, result.moved
    return replace(
        record,
        status=result.outcome.status,
        step=result.step,
        seconds=result.seconds,
        checks=seen.checks,
        downloaded=moved.downloaded,
        uploaded=moved.uploaded,
        saved=moved.saved,
        changed=seen.changed,
        deleted=seen.deleted,
        replaced_unsigned=seen.replaced_unsigned,
        skipped=seen.skipped,
        spark=seen.spark,
        **asdict(seen.made_with),
        fence=result.fence_level or "",
    )
