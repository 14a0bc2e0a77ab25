"""The self-check: stops polling while this worker cannot run attempts, and probes until it can.

    fit ──three attempts in a row failed because of the worker──▶ unfit: it does not poll, and reports why
     ▲                                                              │ 5, 10, 20 … 300 s
     └───────────────────── a probe succeeds ◀──────────────────────┘

The probe makes one call to the lake with the worker's keys and writes a small file into the root.  After a successful probe,
the next attempt that fails because of the worker makes it unfit immediately, and the delays keep growing until an attempt
has shown that the worker can work.

Executors that do not become ready are reported, but do not stop polling: a slot without an executor takes no attempt.
All of this runs on the supervisor's thread, except the probe.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perago.errors import LakeForbidden, LakeNotFound, LakeUnauthenticated
from perago.lake.base import Lake
from perago.protocol.outcome import describe
from perago.protocol.worker_faults import FIRST_CALL
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.health import HealthState
from perago.runtime.worker.job_scheduler import JobScheduler, Note

log = logging.getLogger("perago.fitness")

IN_A_ROW = 3
FIRST_DELAY = 5.0
LONGEST_DELAY = 300.0
PROBE_BYTES = 64 * 1024
_NO_REPOSITORY = "perago-start-up-check"
_PROBE = ".probe"


class SelfCheck:
    """Judges the worker by its attempts and executors; `probe` raises while the worker cannot work."""

    def __init__(
        self,
        probe: Callable[[], None],
        chores: JobScheduler,
        *,
        post: Callable[[Note], None],
        health_state: HealthState,
    ) -> None:
        self._probe = probe
        self._chores = chores
        self._post = post
        self._health_state = health_state
        self._in_a_row = 0
        self._delays = 0
        self._stopped = False
        self._not_ready: dict[int, int] = {}
        self.fit = True
        health_state.wrong("executors", "no executor has become ready yet")

    def ended(self, settled: ExecutionResult, *, has_workspace: bool) -> None:
        """Count a settled execution as a failure of the worker, as proof that it works, or as neither."""
        if settled.worker_fault is not None:
            self.failed(settled.outcome.reason or settled.worker_fault)
        elif has_workspace and settled.step != FIRST_CALL:
            self._in_a_row = self._delays = 0

    def failed(self, reason: str) -> None:
        """Count an attempt that failed because of the worker."""
        self._in_a_row += 1
        if self.fit and self._in_a_row >= IN_A_ROW and not self._stopped:
            self.fit = False
            log.error("polling paused: recent attempts failed because of this worker: %s", reason)
            self._schedule_probe(reason)

    def stop(self) -> None:
        """Stop probing; the worker is draining."""
        self._stopped = True
        self._chores.cancel("self-check")

    def ready(self, number: int) -> None:
        """Record that the executor of a slot is ready."""
        self._not_ready.pop(number, None)
        self._health_state.right("executors")
        self._health_state.right("executors", str(number))

    def not_ready(self, number: int, reason: str) -> None:
        """Record that the executor of a slot could not be started, or ended before it was ready."""
        times = self._not_ready[number] = self._not_ready.get(number, 0) + 1
        if times >= IN_A_ROW:
            text = f"executor {number} did not become ready {times} times in a row: {reason}"
            self._health_state.wrong("executors", text, str(number))

    def _schedule_probe(self, reason: str) -> None:
        self._health_state.wrong("worker", f"the worker cannot work, and does not poll: {reason}")
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0**self._delays)
        self._delays = min(self._delays + 1, 10)
        self._chores.add("self-check", self._run_probe, after=delay)

    def _run_probe(self) -> None:
        """Probe whether the worker can work now.  Runs on a scheduler thread."""
        try:
            self._probe()
        except Exception as error:
            reason = describe(error)
            self._post(lambda: self._on_probed(reason))
        else:
            self._post(lambda: self._on_probed(None))

    def _on_probed(self, reason: str | None) -> None:
        if self._stopped:
            return
        if reason is not None:
            log.warning("the worker cannot work yet, polling stays paused: %s", reason)
            self._schedule_probe(reason)
            return
        log.warning("the worker can work again, polling resumed")
        self.fit, self._in_a_row = True, IN_A_ROW - 1
        self._health_state.right("worker")


def probe_worker(lake: Lake, root: Path) -> None:
    """Raise if the lake does not answer or rejects the keys, or if the root cannot be written."""
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


def ask_lake(lake: Lake) -> None:
    """Raise if the lake does not answer or rejects the keys; a 404 or 403 answer is fine."""
    try:
        lake.head(_NO_REPOSITORY, "main")
    except LakeUnauthenticated:
        raise
    except (LakeNotFound, LakeForbidden):
        return
