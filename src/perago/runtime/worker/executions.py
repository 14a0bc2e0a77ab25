"""The last lines of an execution's task log: the author's traceback, and the record that `perago show` reads.

    status                        how the execution ended
    COMPLETED, FAILED,            as its outcome says
      FAILED_WITH_TERMINAL_ERROR,
      LOST_TO_TWIN
    DIED                          its executor did, at `step`; seconds are those that the supervisor saw
    STOPPED                       the orchestrator had moved on, or the worker was made to leave at once

The rule: secrets are masked in each text, not in the line.  A short one in the line could break its JSON, and the mask could
make it longer than a line may be.

Attempts in flight: each is an execution with a lease and a task log, from its poll to its end.

The task log of every execution ends with its record, however the execution ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from perago.declare.task import TaskDefinition
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import AttemptRecord, record_line
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.logs import attempt_fields
from perago.runtime.root.state_dir import new_execution_id
from perago.runtime.worker.leases import LeaseKeeper, lease_interval
from perago.runtime.worker.slots import Execution
from perago.runtime.worker.task_logs import TaskLogs

DIED = "DIED"
STOPPED = "STOPPED"

Mask = Callable[[str], str]


def last_lines(execution: Execution, mask: Mask) -> list[str]:
    """What follows the lines that the body printed; the record is not among them."""
    return [mask(line) for line in execution.settled.seen.trace] if execution.settled is not None else []


def record_of(execution: Execution, worker_id: str, mask: Mask) -> str:
    """The execution's record as a line."""
    record = AttemptRecord(
        execution=execution.id,
        status=execution.ending,
        step=execution.step,
        started=round(execution.started, 3),
        seconds=execution.seconds,
        worker=worker_id,
    )
    if execution.settled is not None:
        record = _with_all_that_is_known(record, execution.settled)
    checks = tuple(replace(one, label=mask(one.label), found=mask(one.found)) for one in record.checks)
    return record_line(replace(record, checks=checks))


def _with_all_that_is_known(record: AttemptRecord, settled: ExecutionResult) -> AttemptRecord:
    seen, moved = settled.seen, settled.moved
    return replace(
        record,
        status=settled.outcome.status,
        step=settled.step,
        seconds=settled.seconds,
        checks=seen.checks,
        downloaded=moved.downloaded,
        uploaded=moved.uploaded,
        saved=moved.saved,
        changed=seen.changed,
        deleted=seen.deleted,
        fence=settled.fence_level or "",
    )


log = logging.getLogger("perago.attempts")
output_log = logging.getLogger("perago.output")

READ_SECONDS = 2.0
LOG_SECONDS = 5.0


class Executions:
    """The executions between poll and accepted result."""

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        leases: LeaseKeeper,
        task_logs: TaskLogs,
        *,
        worker_id: str = "",
        mask: Callable[[str], str] = str,
    ) -> None:
        self._tasks = tasks
        self._leases = leases
        self._task_logs = task_logs
        self._worker_id = worker_id
        self._mask = mask
        self._executions: dict[str, Execution] = {}

    def __len__(self) -> int:
        return len(self._executions)

    def admit(self, assignment: Assignment) -> Execution:
        """Take up an attempt that was polled: it gets an execution id, and its lease is kept from now on."""
        execution = Execution(new_execution_id(), assignment)
        self._executions[execution.id] = execution
        self._task_logs.begin(execution.id, assignment.attempt)
        self.keep_lease(execution.id, assignment.attempt)
        return execution

    def get(self, execution_id: str) -> Execution | None:
        """The execution, while it is in flight; from any thread."""
        return self._executions.get(execution_id)

    def has(self, execution_id: str) -> bool:
        """Whether the execution is in flight; from any thread."""
        return execution_id in self._executions

    def stop(self, execution: Execution, ending: str) -> None:
        """It ended without a word to the orchestrator, and its process is gone: only its task's log is told."""
        execution.ending = ending
        execution.over(time.time())
        self._end_log(execution, timeout=0.0)
        self.end(execution.id)

    def steps(self) -> list[str]:
        """The steps whose attempts are in flight and not settled yet."""
        running = [one for one in self._executions.values() if one.settled is None]
        return sorted({execution.attempt.reference_task_name for execution in running})

    def end(self, execution_id: str) -> Execution | None:
        """It is over: its lease is let go."""
        self._leases.let_go(execution_id)
        self._task_logs.finish(execution_id)
        return self._executions.pop(execution_id, None)

    def let_go(self, execution_id: str) -> None:
        """Stop extending its lease, though it is not over."""
        self._leases.let_go(execution_id)

    def keep_lease(self, execution_id: str, attempt: Attempt) -> None:
        """Extend the lease of an attempt until `end`."""
        interval = lease_interval(self._tasks.get(attempt.task_name), attempt.response_timeout_seconds)
        self._leases.keep(execution_id, attempt, interval)

    def printed(self, execution_id: str, line: str) -> None:
        """A body has printed a line; from any thread."""
        execution = self.get(execution_id)
        self._task_logs.add(execution_id, line)
        output_log.info("%s", line, extra=fields_of(execution) if execution is not None else None)

    def output_ended(self, execution_id: str) -> None:
        """All that an execution printed has been seen; from any thread."""
        execution = self.get(execution_id)
        if execution is not None:
            execution.output_read.set()

    def finish_log(self, execution: Execution) -> None:
        """Wait, but not for long, until all about the execution is in its task's log; from any thread."""
        execution.output_read.wait(READ_SECONDS)
        self._end_log(execution, timeout=LOG_SECONDS)

    def _end_log(self, execution: Execution, *, timeout: float) -> None:
        for line in last_lines(execution, self._mask):
            self._task_logs.add(execution.id, line)
        record = record_of(execution, self._worker_id, self._mask)
        self._task_logs.finish(execution.id, record=record, timeout=timeout)


def log_result(execution: Execution) -> None:
    """Say in the worker's log how an execution ended, once, with the author's traceback where their code raised."""
    if (settled := execution.settled) is None:
        return
    outcome, trace = settled.outcome, "\n".join(settled.seen.trace)
    said: str = outcome.status
    if outcome.reason is not None:
        # The rest of an author's text is at the traceback's end.
        reason = outcome.reason.partition("\n")[0] if trace else outcome.reason
        said += f" at step {settled.step!r}: {reason}"
    level = logging.INFO if outcome.status == "COMPLETED" else logging.WARNING
    log.log(level, "%s", said, extra={**fields_of(execution), "trace": trace})


def fields_of(execution: Execution) -> dict[str, object]:
    """What a log line about an execution carries."""
    return {"attempt": attempt_fields(execution.attempt, execution.id)}
