"""Sends results until the orchestrator has answered, and drops what was kept for that.

    outbox → [what comes first] → complete, again and again → drop the claim → drop the outbox entry → report

The claim goes only when the orchestrator has answered: until then a twin must find it taken.  A result that an
earlier worker left in the outbox is sent only while its attempt is current and, where it published, its commit is
still the branch's head; for a task that publishes on top of others' commits, while its commit is on the branch and what the
task sees has not changed since.

An orchestrator that gives no answer to a result is asked again for as long as it takes; the result stays in the
outbox and the lease is kept.  A result that waits for a minute is an error in the log and makes the worker unhealthy.
From then on the task is read after each try: if it is over, so is the result.  If the orchestrator tells for an hour
that the task is still open, and does not take its result, the lease is let go: the attempt times out, its workflow goes
on by its retries, and the result is sent on until then.

An orchestrator that was away may carry out late what nobody waits for any more, and cover a result that it has confirmed.
Where it says so, the claim and the outbox entry stay for a while after the answer; then the task is read once more, and
the result sent again if it is open.

A result that cannot be written to the outbox is sent from memory, and written as soon as that works.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from perago.errors import (
    OrchestratorNotFound,
    OrchestratorRefused,
    PeragoError,
    StaleAttemptError,
)
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.protocol.outcome import result_refused, sendable
from perago.runtime.attempt.delivery import finish, give_up_on, send
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.internal_branches import why_not_published_any_more
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS
from perago.runtime.observe.logs import attempt_fields
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.leases import why_over
from perago.runtime.worker.outbox import Outbox

log = logging.getLogger("perago.courier")

LONGEST_PAUSE = 10.0
LEASE_SECONDS = 3600.0
"""How long an open task whose result is not taken keeps its lease."""
SECOND_LOOK_SECONDS = 10.0
"""A server that answers again has carried out by then what it was sent before, also where its database was locked."""
NOBODYS_RESULT = frozenset({"TIMED_OUT", "CANCELED", "SKIPPED"})
"""How a task ends without one."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A result that is not sent yet: for how long, why, and whether its lease is to be let go."""

    pending: PendingResult
    seconds: float
    reason: str
    let_go: bool = False

    @property
    def too_long(self) -> bool:
        """Whether somebody should look."""
        return self.seconds >= UNHEALTHY_AFTER_SECONDS


@dataclass(frozen=True, slots=True)
class ResultSender:
    """Carries parcels to the orchestrator; `delivered` and `delayed` are called from one of the timetable's threads.

    `kept` hears whether a result could be written to the outbox: None, or why not; on any thread.
    """

    orchestrator: Orchestrator
    lake: Lake
    outbox: Outbox
    scheduler: JobScheduler
    worker_id: str
    reason_limit: int
    delivered: Callable[[DeliveryResult], None]
    mask: Callable[[str], str]
    delayed: Callable[[Delay], None] = lambda _delay: None
    kept: Callable[[PendingResult, Exception | None], None] = lambda _pending, _error: None
    clock: Callable[[], float] = time.monotonic
    second_look_seconds: float = SECOND_LOOK_SECONDS

    def send(self, pending: PendingResult, first: Callable[[], None] | None = None) -> None:
        """Send a result of this worker; `first` is done before, on the sending thread."""
        pending = self._sendable(pending)
        self._take(_SendJob(self, pending, first, in_outbox=self.keep(pending)))

    def resume(self, pending: PendingResult) -> None:
        """Send a result that an earlier worker left behind, if it still may be."""
        self._take(_SendJob(self, self._sendable(pending), resumed=True, in_outbox=True))

    def keep(self, pending: PendingResult) -> bool:
        """Write a result to the outbox, if that is possible; on any thread."""
        try:
            self.outbox.put(pending)
        except Exception as error:
            # Not only a full disk: a result that cannot be written as JSON must not end the worker either.
            self.kept(pending, error)
            return False
        self.kept(pending, None)
        return True

    def _take(self, send_job: _SendJob) -> None:
        self.scheduler.add(("send", send_job.pending.execution_id), send_job)

    def _sendable(self, pending: PendingResult) -> PendingResult:
        return replace(pending, outcome=sendable(pending.outcome, self.mask, self.reason_limit))

    def refused(self, pending: PendingResult, error: OrchestratorRefused) -> PendingResult:
        """What is said in place of a result that the server will never take."""
        return self._sendable(replace(pending, outcome=result_refused(error), publication=None))


@dataclass(slots=True)
class _SendJob:
    """One result under way; a job of the timetable."""

    sender: ResultSender
    pending: PendingResult
    first: Callable[[], None] | None = None
    resumed: bool = False
    in_outbox: bool = False
    may_be_sent: bool = field(default=False, init=False)
    taken: DeliveryResult | None = field(default=None, init=False)
    failures: int = field(default=0, init=False)
    waits_since: float | None = field(default=None, init=False)
    waits_long: bool = field(default=False, init=False)
    lease_let_go: bool = field(default=False, init=False)

    def __call__(self) -> float | None:
        try:
            if self.first is not None:
                first, self.first = self.first, None
                first()
            if self.taken is not None:
                return self._look_again(self.taken)
            if self.resumed and not self.may_be_sent and (why := self._why_not_any_more()) is not None:
                return self._give_up(why)
            self.may_be_sent = True
            return self._complete()
        except Exception as error:
            # Whatever it is, a result is not lost to it, and nobody waits for it without a word.
            return self._later(error)

    def _complete(self) -> float | None:
        sender, pending = self.sender, self.pending
        try:
            sent = send(sender.orchestrator, pending, worker_id=sender.worker_id)
        except OrchestratorRefused as refused:
            if pending.outcome.status != "COMPLETED":
                return self._give_up(str(refused))
            log.error("a result is sent as FAILED: %s", refused, extra=self._fields())
            self.pending = sender.refused(pending, refused)
            self.in_outbox = sender.keep(self.pending)
            return 0.0
        if sent.accepted and sender.orchestrator.may_be_covered(pending.attempt, left_behind=self.resumed):
            self.taken = sent
            return sender.second_look_seconds
        return self._done(finish(sender.lake, sent))

    def _look_again(self, taken: DeliveryResult) -> float | None:
        """Whether a result that was taken is still there; the claim stays until then, so that no twin publishes."""
        sender, pending = self.sender, self.pending
        try:
            found = sender.orchestrator.current(pending.attempt)
        except OrchestratorNotFound:
            return self._done(finish(sender.lake, taken))
        if found.status in NOBODYS_RESULT or found.retry_count != pending.attempt.retry_count:
            why = f"it was accepted, then undone by a late update, and now the task is {found.status}"
            return self._give_up(why)
        if why_over(pending.attempt, found) is None:
            log.warning(
                "the result was accepted, and undone by a late update: it is sent again", extra=self._fields()
            )
            if send(sender.orchestrator, pending, worker_id=sender.worker_id).accepted:
                return sender.second_look_seconds
            # Only a workflow that has ended takes none for an open task: it went on by the one that it had accepted.
        return self._done(finish(sender.lake, taken))

    def _give_up(self, why: str) -> float | None:
        return self._done(give_up_on(self.sender.lake, self.pending, why))

    def _look(self) -> tuple[bool, str]:
        """Whether the task is still open, and else why its attempt can never take a result; (False, "") if unknown."""
        attempt = self.pending.attempt
        try:
            over = why_over(attempt, self.sender.orchestrator.current(attempt))
        except OrchestratorNotFound as gone:
            return False, str(gone)
        except Exception as error:
            log.debug("task %s could not be read either: %s", attempt.task_id, error)
            return False, ""
        return over is None, over or ""

    def _why_not_any_more(self) -> str | None:
        """Why a result that was left behind must not be sent, or None."""
        sender, pending = self.sender, self.pending
        try:
            assert_current_attempt_snapshot(pending.attempt, sender.orchestrator.current(pending.attempt))
        except (StaleAttemptError, OrchestratorNotFound) as over:
            return str(over)
        published = pending.publication
        if published is None:
            return None
        why = why_not_published_any_more(sender.lake, published)
        if why is not None:
            # The attempt is still current, so a twin of it may be at work: the claim stays, the retry revokes it.
            self.pending = replace(pending, claim=None)
        return why

    def _done(self, delivery: DeliveryResult) -> float | None:
        sender, pending = self.sender, self.pending
        if not delivery.accepted:
            log.warning(
                "the result %s was not accepted: %s",
                *(pending.outcome.status, delivery.reason),
                extra=self._fields(),
            )
        try:
            sender.outbox.drop(pending.execution_id)
        except OSError as error:
            # The next start finds that the task is over.
            log.warning("a result that was sent stays in the outbox: %s", error, extra=self._fields())
        sender.delivered(delivery)
        return None

    def _later(self, error: Exception) -> float | None:
        sender, now = self.sender, self.sender.clock()
        self.waits_since = now if self.waits_since is None else self.waits_since
        seconds = now - self.waits_since
        is_open, over = self._look() if seconds >= UNHEALTHY_AFTER_SECONDS else (False, "")
        if over and self.taken is None:
            return self._give_up(over)
        lets_go = is_open and not self.lease_let_go and seconds >= LEASE_SECONDS
        delay = Delay(self.pending, seconds, str(error), let_go=lets_go)
        self._say(delay, error)
        self.waits_long = self.waits_long or delay.too_long
        self.lease_let_go = self.lease_let_go or delay.let_go
        self.in_outbox = self.in_outbox or sender.keep(self.pending)
        sender.delayed(delay)
        pause = min(LONGEST_PAUSE, 0.1 * 2.0**self.failures) * random.uniform(0.5, 1.0)
        self.failures = min(self.failures + 1, 10)
        return pause

    def _say(self, delay: Delay, error: Exception) -> None:
        trace = None if isinstance(error, PeragoError) else error
        if delay.let_go:
            log.error(
                "the result has not been accepted for %.0f s although its task is open: its lease is no longer extended: %s",
                *(delay.seconds, error),
                extra=self._fields(),
            )
        elif delay.too_long and not self.waits_long:
            log.error(
                "the result has not been accepted for %.0f s; Perago keeps sending it: %s",
                *(delay.seconds, error),
                extra=self._fields(),
                exc_info=trace,
            )
        elif not self.failures:
            log.warning(
                "a result is not sent yet, and tried again: %s", error, extra=self._fields(), exc_info=trace
            )

    def _fields(self) -> dict[str, object]:
        return {"attempt": attempt_fields(self.pending.attempt, self.pending.execution_id)}
