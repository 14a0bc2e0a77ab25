"""What happens in a worker, as its callers see it: the live table of `perago run` and the metrics hang on it.

polled         an attempt has come and waits for a slot
step           an execution begins a step
doing          a body says how far it is; `text` has its words
printed        a line for the attempt's task log: what a body printed, or the record of the execution
ended          an execution is settled; its result is on its way, or it keeps silent
accepted       the orchestrator took the result
not-accepted   it did not: the task was over
stopped        an attempt was over before it ended, and its executor was stopped
died           an executor died; with an attempt if it was running one
restarted      a new executor takes a slot
lease-failed   a lease could not be extended
not-sent       a result was sent, and the orchestrator gave no answer to it: it is sent again
not-kept       a result could not be written to the outbox, and is sent from memory
swept          `count` leftovers were removed
draining       a signal has come (`step` has its name); `text` names the steps that are being finished
forced         another one has: executors are killed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from perago.protocol.attempt import Attempt
from perago.runtime.execution_result import ExecutionResult, PendingResult
from perago.runtime.observe.metrics import NoMetrics, ending_of

Kind = Literal[
    "polled",
    "step",
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
    """One thing that happened; what does not apply is empty."""

    kind: Kind
    attempt: Attempt | None = None
    execution_id: str = ""
    step: str = ""
    settled: ExecutionResult | None = None
    pending: PendingResult | None = None
    died: bool = False
    text: str = ""
    count: int = 0


Listener = Callable[[Event], None]


def counting(metrics: NoMetrics) -> Listener:
    """A listener that counts."""

    def listen(event: Event) -> None:
        task = event.attempt.task_name if event.attempt is not None else ""
        match event:
            case Event(kind="ended", settled=ExecutionResult() as settled):
                _count_settled(metrics, task, settled)
            case Event(kind="accepted" | "not-accepted", pending=PendingResult() as pending):
                refused = event.settled is not None and event.settled.refused
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


def _count_settled(metrics: NoMetrics, task: str, settled: ExecutionResult) -> None:
    metrics.steps_took(task, settled.seconds)
    moved = settled.moved
    metrics.bytes_moved(task, downloaded=moved.downloaded, uploaded=moved.uploaded, saved=moved.saved)
    if settled.tries:
        metrics.tried_to_publish(task, settled.tries)
    if settled.fence_level is not None:
        metrics.published(task, settled.fence_level)
    if not settled.outcome.send:
        metrics.attempt_ended(task, ending_of(settled.outcome, accepted=False))
