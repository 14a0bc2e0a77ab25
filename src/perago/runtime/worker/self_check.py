"""The self-check: stops polling while this worker cannot run attempts, and probes until it can.

    fit ──three attempts in a row failed because of the worker──▶ unfit: it does not poll, and reports why
     ▲                                                              │ 5, 10, 20 … 300 s
     └───────────────────── a probe succeeds ◀──────────────────────┘

The probe makes one call to the lake with the worker's keys and writes a small file into the root.  After a successful probe,
the next attempt that fails because of the worker makes it unfit immediately, and the delays keep growing until an attempt
has shown that the worker can work.

Executors that do not become ready are reported, but do not stop polling: a slot without an executor takes no attempts.
All of this runs on the supervisor's thread, except the probe.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perago.errors import LakeForbidden, LakeNotFound, LakeUnauthenticated
from perago.lake.base import ReadableLake
from perago.protocol.backoff import Backoff
from perago.protocol.outcome import describe
from perago.protocol.worker_faults import FIRST_CALL
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.inbox import Inbox, WorkerProbed
from perago.runtime.worker.job_scheduler import JobScheduler

log = logging.getLogger("perago.fitness")

IN_A_ROW = 3
BACKOFF = Backoff(5.0, longest=300.0)
PROBE_BYTES = 64 * 1024
_NO_REPOSITORY = "perago-start-up-check"
_PROBE = ".probe"


class SelfCheck:
    """Decides from the results of attempts and executors whether the worker can work.

    `probe` raises as long as the worker cannot run attempts.
    """

    def __init__(
        self,
        probe: Callable[[], None],
        chores: JobScheduler,
        inbox: Inbox,
        *,
        health_state: HealthState,
    ) -> None:
        self._probe = probe
        self._chores = chores
        self._inbox = inbox
        self._health_state = health_state
        self._in_a_row = 0
        self._probes = 0
        self._stopped = False
        self._not_ready: dict[int, int] = {}
        self.fit = True
        health_state.set_problem("executors", "no executor has become ready yet")

    def count_result(self, result: ExecutionResult, *, has_workspace: bool) -> None:
        """Count an execution's result as a failure of the worker, as proof that the worker works, or as neither."""
        if result.worker_fault is not None:
            self.count_failure(result.outcome.reason or result.worker_fault)
        elif has_workspace and result.step != FIRST_CALL:
            self._in_a_row = self._probes = 0

    def count_failure(self, reason: str) -> None:
        """Count an attempt that failed because of the worker."""
        self._in_a_row += 1
        if self.fit and self._in_a_row >= IN_A_ROW and not self._stopped:
            self.fit = False
            log.error("polling paused: recent attempts failed because of this worker: %s", reason)
            self._schedule_probe(reason)

    def stop(self) -> None:
        """Stop probing because the worker is draining."""
        self._stopped = True
        self._chores.cancel("self-check")

    def ready(self, number: int) -> None:
        """Record that a slot's executor is ready."""
        self._not_ready.pop(number, None)
        self._health_state.clear_problem("executors")
        self._health_state.clear_problem("executors", str(number))

    def not_ready(self, number: int, reason: str) -> None:
        """Record that a slot's executor could not be started, or ended before it was ready."""
        times = self._not_ready[number] = self._not_ready.get(number, 0) + 1
        if times >= IN_A_ROW:
            text = f"executor {number} did not become ready {times} times in a row: {reason}"
            self._health_state.set_problem("executors", text, str(number))

    def _schedule_probe(self, reason: str) -> None:
        self._health_state.set_problem("worker", f"the worker cannot work, and does not poll: {reason}")
        self._probes += 1
        self._chores.add("self-check", self._run_probe, after=BACKOFF.delay(self._probes))

    def _run_probe(self) -> None:
        """Probe whether the worker can run attempts now.  Runs on a scheduler thread."""
        try:
            self._probe()
        except Exception as error:
            self._inbox.post(WorkerProbed(describe(error)))
        else:
            self._inbox.post(WorkerProbed())

    def on_probed(self, problem: str | None) -> None:
        """Resume polling after a successful probe, or schedule the next probe."""
        if self._stopped:
            return
        if problem is not None:
            log.warning("the worker cannot work yet, polling stays paused: %s", problem)
            self._schedule_probe(problem)
            return
        log.warning("the worker can work again, polling resumed")
        self.fit, self._in_a_row = True, IN_A_ROW - 1
        self._health_state.clear_problem("worker")


def probe_worker(lake: ReadableLake, root: Path) -> None:
    """Raise if the lake does not respond or rejects the keys, or if the root cannot be written."""
    ask_lake(lake)
    file = root / _PROBE
    try:
        with open(file, "wb") as probe:
            probe.write(bytes(PROBE_BYTES))
            probe.flush()
            # Some file systems report only here that they are full.
            os.fsync(probe.fileno())
    finally:
        with suppress(OSError):
            file.unlink()


def ask_lake(lake: ReadableLake) -> None:
    """Raise if the lake does not respond or rejects the keys.  A 404 or 403 response is not an error here."""
    try:
        lake.head(_NO_REPOSITORY, "main")
    except LakeUnauthenticated:
        raise
    except (LakeNotFound, LakeForbidden):
        return
