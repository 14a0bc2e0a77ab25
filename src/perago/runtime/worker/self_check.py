"""Whether this worker is fit to take attempts.

    fit ──three attempts in a row failed for the worker's own reasons──▶ unfit: it does not poll, and says why
     ▲                                                                     │ 5, 10, 20 … 300 s
     └──────────────────── a try of its own works ◀────────────────────────┘

The try asks the lake something with the worker's keys, and writes a little into the root.  After a try that worked the
first attempt that fails for the worker's own reasons again makes it unfit at once, and the pauses go on growing until
an attempt has shown that the worker can work.

Executors that do not become ready are no reason to stop polling (a slot without one takes no attempt), but are said.
All of this belongs to the supervisor's thread; only the try is made on another.
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
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
A_LITTLE = 64 * 1024
_NO_REPOSITORY = "perago-start-up-check"
_PROBE = ".probe"


class SelfCheck:
    """What the worker's attempts and executors tell about the worker itself; `probe` raises while it cannot work."""

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
        self._pauses = 0
        self._stopped = False
        self._not_ready: dict[int, int] = {}
        self.fit = True
        health_state.wrong("executors", "no executor has become ready yet")

    def ended(self, settled: ExecutionResult, *, has_workspace: bool) -> None:
        """An execution is settled: it tells for the worker, against it, or nothing."""
        if settled.own_reason is not None:
            self.failed(settled.outcome.reason or settled.own_reason)
        elif has_workspace and settled.step != FIRST_CALL:
            self._in_a_row = self._pauses = 0

    def failed(self, reason: str) -> None:
        """An attempt failed for the worker's own reasons."""
        self._in_a_row += 1
        if self.fit and self._in_a_row >= IN_A_ROW and not self._stopped:
            self.fit = False
            log.error("the worker does not poll: its last attempts failed for its own reasons: %s", reason)
            self._pause(reason)

    def stop(self) -> None:
        """The worker takes no more attempts anyway."""
        self._stopped = True
        self._chores.cancel("fitness")

    def ready(self, number: int) -> None:
        """The executor of that slot takes attempts."""
        self._not_ready.pop(number, None)
        self._health_state.right("executors")
        self._health_state.right("executors", str(number))

    def not_ready(self, number: int, reason: str) -> None:
        """The executor of that slot has ended, or could not be started, before it was ready."""
        times = self._not_ready[number] = self._not_ready.get(number, 0) + 1
        if times >= IN_A_ROW:
            text = f"executor {number} did not become ready {times} times in a row: {reason}"
            self._health_state.wrong("executors", text, str(number))

    def _pause(self, reason: str) -> None:
        self._health_state.wrong("worker", f"the worker cannot work, and does not poll: {reason}")
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**self._pauses)
        self._pauses = min(self._pauses + 1, 10)
        self._chores.add("fitness", self._try, after=pause)

    def _try(self) -> None:
        """On a chores thread: see whether the worker could work now."""
        try:
            self._probe()
        except Exception as error:
            reason = describe(error)
            self._post(lambda: self._tried(reason))
        else:
            self._post(lambda: self._tried(None))

    def _tried(self, reason: str | None) -> None:
        if self._stopped:
            return
        if reason is not None:
            log.warning("the worker cannot work yet, and does not poll: %s", reason)
            self._pause(reason)
            return
        log.warning("the worker can work again, and polls")
        self.fit, self._in_a_row = True, IN_A_ROW - 1
        self._health_state.right("worker")


def try_to_work(lake: Lake, root: Path) -> None:
    """What every attempt needs: the lake answers and knows the keys, the root can be written."""
    ask_lake(lake)
    file = root / _PROBE
    try:
        with open(file, "wb") as probe:
            probe.write(bytes(A_LITTLE))
            probe.flush()
            # A file system may find out only here that it is full.
            os.fsync(probe.fileno())
    finally:
        with suppress(OSError):
            file.unlink()


def ask_lake(lake: Lake) -> None:
    """Whether the lake answers and knows the keys; what it may not show, and what is not there, is no matter."""
    try:
        lake.head(_NO_REPOSITORY, "main")
    except LakeUnauthenticated:
        raise
    except (LakeNotFound, LakeForbidden):
        return
