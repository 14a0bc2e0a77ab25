"""Lineage: reports every attempt to OpenLineage, if its client is configured.

    event in the worker                                    OpenLineage
    polled                                                 START
    accepted, with the status COMPLETED                    COMPLETE, with what was published as outputs
    accepted, with another status                          FAIL
    ended without a result to send: stale, or a lost twin  ABORT
    not-accepted, stopped                                  ABORT
    still running when the worker has been forced to stop  ABORT

The listener only puts a report into a queue.  One thread builds the events and sends them with the official client, which
is imported there.  If a receiver is slow, refuses or is away, reports are lost: the queue holds `MOST_WAITING`, and the
end of the worker waits at most `LAST_SEND_SECONDS`.  The first loss is logged, and the end says how many there were.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from perago.declare.task import TaskDefinition
from perago.errors import install_extra
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.runtime.execution_result import ExecutionResult, Publication
from perago.runtime.observe.events import Event, Listener
from perago.runtime.worker.plan import WorkerPlan

log = logging.getLogger("perago.lineage")

MOST_WAITING = 1000
"""Reports beyond this number are lost."""
LAST_SEND_SECONDS = 2.0
THREAD = "lineage"
"""The name of the thread that sends."""
_CONFIG_FILE = "openlineage.yml"

State = Literal["START", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True, slots=True)
class RunReport:
    """The content of one OpenLineage event.  `given` is None if an earlier worker polled the attempt."""

    state: State
    execution_id: str
    attempt: Attempt
    task: TaskDefinition | None = None
    given: Assignment | None = None
    publication: Publication | None = None
    result: ExecutionResult | None = None
    reason: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class Sender(Protocol):
    """Sends reports.  Its calls may raise anything, and may take long."""

    def send(self, report: RunReport) -> None:
        """Send a report, or hand it to the client's own thread."""

    def close(self) -> None:
        """Send what the client's own thread still has."""


def is_configured(environ: Mapping[str, str], folder: Path, home: Path) -> bool:
    """Return whether the official client has a configuration: in the environment or in one of its files."""
    if environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if environ.get("OPENLINEAGE_URL", "").strip():
        return True
    if any(name.startswith("OPENLINEAGE__TRANSPORT") for name in environ):
        return True
    named = environ.get("OPENLINEAGE_CONFIG", "").strip()
    files = (
        *([Path(named)] if named else []),
        folder / _CONFIG_FILE,
        home / ".openlineage" / _CONFIG_FILE,
    )
    return any(map(Path.is_file, files))


@contextmanager
def reporting_lineage(
    environ: Mapping[str, str], plan: WorkerPlan, then: Listener | None = None
) -> Iterator[Listener | None]:
    """Yield a listener that reports lineage and calls `then`, or `then` itself if nothing is configured."""
    if not is_configured(environ, Path.cwd(), Path.home()):
        yield then
        return

    def open_sender() -> Sender:
        from perago.runtime.worker.openlineage_sender import open_sender

        return open_sender(plan)

    reports = ReportQueue(open_sender)
    listener = LineageListener(plan.tasks, reports.put)
    try:
        yield both(then, listener)
    finally:
        listener.close()
        reports.close()


def both(first: Listener | None, second: Listener) -> Listener:
    """Return a listener that calls two."""

    def listen(event: Event) -> None:
        try:
            second(event)
        finally:
            if first is not None:
                first(event)

    return listen


class LineageListener:
    """Turns a worker's events into reports."""

    def __init__(self, tasks: Mapping[str, TaskDefinition], put: Callable[[RunReport], None]) -> None:
        self._tasks = tasks
        self._put = put
        self._open: dict[str, Assignment] = {}
        self._with_result: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Report an event, if it begins or ends a run."""
        match event:
            case Event(kind="polled", assignment=Assignment() as assignment):
                self._open[event.execution_id] = assignment
                self._report("START", event.execution_id, assignment.attempt, ends=False)
            case Event(kind="ended", attempt=Attempt() as attempt, result=ExecutionResult() as result):
                if result.outcome.send:
                    self._with_result.add(event.execution_id)
                else:
                    self._report("ABORT", event.execution_id, attempt, result, reason=result.outcome.reason)
            case Event(kind="stopped", attempt=Attempt() as attempt):
                self._report("ABORT", event.execution_id, attempt, reason=event.text)
            case Event(kind="died" | "not-sent" | "not-kept") if event.execution_id:
                # The worker reports it, or the next one on its root.
                self._with_result.add(event.execution_id)
            case Event(kind="accepted" | "not-accepted"):
                self._on_answer(event)

    def close(self) -> None:
        """Report the runs that the worker has killed.  Results in the outbox are reported by the next worker."""
        for execution_id in [one for one in self._open if one not in self._with_result]:
            attempt = self._open[execution_id].attempt
            self._report("ABORT", execution_id, attempt, reason="the worker was stopped")

    def _on_answer(self, event: Event) -> None:
        pending = event.pending
        if pending is None:
            return
        about = (event.execution_id, pending.attempt, event.result)
        if event.kind == "not-accepted":
            self._report("ABORT", *about, reason=event.text)
        elif pending.outcome.status == "COMPLETED":
            self._report("COMPLETE", *about, publication=pending.publication)
        else:
            self._report("FAIL", *about, reason=pending.outcome.reason)

    def _report(
        self,
        state: State,
        execution_id: str,
        attempt: Attempt,
        result: ExecutionResult | None = None,
        *,
        publication: Publication | None = None,
        reason: str | None = "",
        ends: bool = True,
    ) -> None:
        given, task = self._open.get(execution_id), self._tasks.get(attempt.task_name)
        if ends:
            self._open.pop(execution_id, None)
            self._with_result.discard(execution_id)
        self._put(
            RunReport(state, execution_id, attempt, task, given, publication, result, reason=reason or "")
        )


class ReportQueue:
    """Sends reports on a thread of its own.  Whatever happens there is no concern of the worker."""

    def __init__(self, open_sender: Callable[[], Sender], most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._waiting: queue.SimpleQueue[RunReport | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unsent = 0
        self._logged = self._over = False
        self.lost = 0
        """The number of reports that were not sent."""
        # A daemon, since a call that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, args=(open_sender,), name=THREAD, daemon=True)
        self._thread.start()

    def put(self, report: RunReport) -> None:
        """Send a report later, or lose it if too many are waiting."""
        with self._lock:
            full = self._unsent >= self._most_waiting
            self._unsent += not full
        if full:
            self._lose(f"{self._most_waiting} events are waiting already")
        else:
            self._waiting.put(report)

    def close(self, seconds: float = LAST_SEND_SECONDS) -> None:
        """Send what is waiting, for at most `seconds`.  The rest is lost."""
        self._waiting.put(None)
        self._thread.join(seconds)
        with self._lock:
            self._over = True
            self.lost += self._unsent
        if self.lost:
            why = "" if self._logged else "; the receiver did not take them in time"
            log.warning("lineage events that were lost: %d%s", self.lost, why)

    def _work(self, open_sender: Callable[[], Sender]) -> None:
        sender: Sender | None = None
        problem = ""
        try:
            sender = open_sender()
        except ImportError:
            problem = f"the client is missing: {install_extra('lineage')}"
        except Exception as error:
            problem = f"the client's configuration cannot be used ({type(error).__name__})"
        while (report := self._waiting.get()) is not None and not self._over:
            failed = problem if sender is None else _failure(sender, report)
            with self._lock:
                self._unsent -= 1
            if failed and not self._over:
                self._lose(failed)
        if sender is not None and not self._over:
            with suppress(Exception):
                sender.close()

    def _lose(self, why: str) -> None:
        with self._lock:
            self.lost += 1
            first, self._logged = not self._logged, True
        if first:
            log.warning("lineage events are lost, attempts go on: %s", why)


def _failure(sender: Sender, report: RunReport) -> str:
    """Send a report, and return what went wrong.  An error's text may contain an address with its key."""
    try:
        sender.send(report)
    except Exception as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        return f"{type(error).__name__}{f' {code}' if code else ''} from the receiver"
    return ""
