"""Leases of the attempts in progress: when each was last extended, when it runs out, and whether its worker is gone.

A worker is known to be gone only if it was this root's: the process of its run has ended, or the root records the attempt
as in flight and no process holds the root's lock.  Nothing is said about workers elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt import IN_PROGRESS
from perago.runtime.root.state_dir import is_locked
from perago.runtime.runs.format import attempt_name
from perago.runtime.runs.inspect import RunHandle, worker_tasks
from perago.runtime.worker.in_flight import InFlightFiles


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one attempt in progress."""

    attempt: str
    task_id: str
    worker: str
    extended: float
    """The time of the last extension, or of the poll if there was none yet."""
    runs_out: float | None
    """None if no timeout applies."""
    worker_gone: bool


def leases_of(found: RunHandle, state: WorkflowState, server: str) -> Iterator[Lease]:
    """Yield the leases of the attempts in progress.  `server` is the address of the workflow's orchestrator."""
    root = found.servers.settings.workspace_root
    stopped = found.run is not None and not found.may_progress
    dead: dict[str, str] = {}
    if not stopped and not is_locked(root):
        dead = {one.attempt.task_id: one.worker_id for one in InFlightFiles(root, server).read()}
    for task in worker_tasks(state):
        if task.status == IN_PROGRESS and task.updated:
            gone = stopped or (task.worker is not None and dead.get(task.task_id) == task.worker)
            yield _lease(task, paused=state.status == "PAUSED", gone=gone)


def _lease(task: TaskState, *, paused: bool, gone: bool) -> Lease:
    ends = task.response_seconds > 0 and not paused
    return Lease(
        attempt_name(task.reference, task.retry_count),
        task.task_id,
        task.worker or "",
        task.updated or 0.0,
        (task.updated or 0.0) + task.response_seconds if ends else None,
        gone,
    )
