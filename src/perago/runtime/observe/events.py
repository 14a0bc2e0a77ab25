"""Events in a worker. The live table of `perago run`, the metrics, the traces and lineage listen to them.

polled         an attempt was polled and is waiting for a slot
step           an execution is starting a step
traced         a step has ended, and its times are for the trace; only while traces are on
doing          a body reported its progress; `text` is its message
printed        a line for the attempt's task log: output of the body, or the record of the execution
ended          an execution ended; its result is being sent, or none will be sent
accepted       the orchestrator accepted the result
not-accepted   the orchestrator did not accept the result: the task was over
stopped        Conductor ended the attempt while it was running, and its executor was stopped
died           an executor died; the event has an attempt if the executor was running one
restarted      a new executor was started in a slot
lease-failed   a lease could not be extended
not-sent       a result was sent but the orchestrator did not answer; it will be sent again
not-kept       a result could not be written to the outbox, and is sent from memory
swept          `count` leftover workdirs were removed
draining       a signal arrived (`step` is its name); `text` names the steps that are being finished
forced         a second signal arrived: executors are killed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.runtime.execution_result import ExecutionResult, PendingResult
from perago.runtime.observe.call_recorder import StepTimes
from perago.runtime.observe.metrics import NoMetrics, ending_of

Kind = Literal[
    "polled",
    "step",
    "traced",
    "doing",
    "printed",
    "ended",
    "accepted",
    "not-accepted",
    "stopped",
    "died",
    "restarted",
    "lease-failed",
    "not-sent",
    "not-kept",
    "swept",
    "draining",
    "forced",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Fields that do not apply are empty."""

    kind: Kind
    attempt: Attempt | None = None
    execution_id: str = ""
    step: str = ""
    result: ExecutionResult | None = None
    pending: PendingResult | None = None
    died: bool = False
    text: str = ""
    count: int = 0
    assignment: Assignment | None = None
    times: StepTimes | None = None


Listener = Callable[[Event], None]


def telling(*listeners: Listener) -> Listener:
    """Return a listener that passes every event to all of these."""

    def listen(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return listen


def counting(metrics: NoMetrics) -> Listener:
    """Return a listener that updates the metrics."""

    def listen(event: Event) -> None:
        task = event.attempt.task_name if event.attempt is not None else ""
        match event:
            case Event(kind="ended", result=ExecutionResult() as result):
                _count_result(metrics, task, result)
            case Event(kind="accepted" | "not-accepted", pending=PendingResult() as pending):
                refused = event.result is not None and event.result.refused
                ending = ending_of(pending.outcome, accepted=event.kind == "accepted", refused=refused)
                metrics.attempt_ended(task, "died" if event.died and ending == "failed" else ending)
            case Event(kind="stopped"):
                metrics.attempt_ended(task, "stale")
            case Event(kind="restarted"):
                metrics.executor_restarted()
            case Event(kind="lease-failed"):
                metrics.lease_failed(task)
            case Event(kind="not-sent"):
                metrics.send_failed(task)
            case Event(kind="not-kept"):
                metrics.outbox_failed(task)
            case Event(kind="swept", count=count) if count:
                metrics.swept("workdir", count)

    return listen


def _count_result(metrics: NoMetrics, task: str, result: ExecutionResult) -> None:
    metrics.steps_took(task, result.seconds)
    moved = result.moved
    metrics.bytes_moved(task, downloaded=moved.downloaded, uploaded=moved.uploaded, saved=moved.saved)
    if result.seen.spark is not None:
        metrics.spark_worked(task, result.seen.spark)
    if result.tries:
        metrics.tried_to_publish(task, result.tries)
    if result.seen.skipped:
        metrics.skipped(task)
    if result.seen.replaced_unsigned:
        metrics.replaced_unsigned(task)
    if result.fence_level is not None:
        metrics.published(task, result.fence_level)
    if not result.outcome.send:
        metrics.attempt_ended(task, ending_of(result.outcome, accepted=False))
