"""A worker in one process: threads that poll and execute, for `perago run` on a laptop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from perago.errors import PeragoError
from perago.orchestrator.base import Assignment
from perago.runtime.executor import Executor
from perago.runtime.heartbeat import LeaseKeeper, lease_interval

log = logging.getLogger("perago.inline")

_IDLE_SECONDS = 0.02


@contextmanager
def working(executor: Executor, threads: int) -> Iterator[None]:
    """Poll and execute in the background for as long as the block runs; attempts in flight are finished."""
    stop = threading.Event()
    with LeaseKeeper(executor.around.orchestrator, executor.worker_id) as leases:
        crew = [
            threading.Thread(target=_work, args=(executor, leases, stop), name=f"perago-worker-{number}")
            for number in range(threads)
        ]
        for member in crew:
            member.start()
        try:
            yield
        finally:
            stop.set()
            for member in crew:
                member.join()


def _work(executor: Executor, leases: LeaseKeeper, stop: threading.Event) -> None:
    while not stop.is_set():
        for assignment in _poll(executor):
            task = executor.tasks[assignment.attempt.task_name]
            interval = lease_interval(task, assignment.attempt.response_timeout_seconds)
            with leases.keeping(assignment.attempt.task_id, assignment.attempt, interval):
                executor.execute(assignment)
            break
        else:
            stop.wait(_IDLE_SECONDS)


def _poll(executor: Executor) -> Sequence[Assignment]:
    for name in executor.tasks:
        try:
            polled = executor.around.orchestrator.poll(
                name, worker_id=executor.worker_id, count=1, wait_seconds=0
            )
        except PeragoError as error:
            log.warning("polling %s failed: %s", name, error)
            continue
        if polled:
            return polled
    return ()
