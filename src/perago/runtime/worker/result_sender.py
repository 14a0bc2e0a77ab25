"""Sends results until the orchestrator responds, then drops the claim and the outbox entry.

    outbox → [preparation] → complete, with retries → drop the claim → drop the outbox entry → report

The claim is dropped only after the orchestrator has responded: until then, a twin must find the claim taken.  A result
that an earlier worker left in the outbox is sent only if its attempt is still current.  If that attempt published, its
commit must also still be the branch's head.  For a task that publishes on top of others' commits, it is enough that the
commit is on the branch and the task's view has not changed since.

If there is no response, the result is resent for as long as it takes.  It stays in the outbox, and its lease is
extended.  After a minute, an error is logged and the worker becomes unhealthy.  From then on, the task is read after
each failure, and the result is dropped if the attempt is over.  If the task is still open after an hour, its lease is
no longer extended: the attempt times out, and the workflow continues with its retries.  Until the timeout, the result
is still resent.

An orchestrator that was unreachable may carry out an old update late, and overwrite a result that it has already
accepted.  If the orchestrator says that this may happen, the claim and the outbox entry are kept for a while after the
response.  Then the task is read once more, and the result is sent again if the task is open.

A result that cannot be written to the outbox is sent from memory, and written as soon as that is possible.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from perago.errors import (
    OrchestratorNotFound,
    OrchestratorRefused,
    PeragoError,
    StaleAttemptError,
)
from perago.lake.base import StagingLake
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.protocol.backoff import Backoff
from perago.protocol.outcome import prepare_for_sending, result_refused
from perago.runtime.attempt.delivery import finish, give_up_on, send
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.internal_branches import invalid_publication_reason
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS
from perago.runtime.observe.logs import attempt_fields
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.inbox import Inbox, ResultDelayed, ResultStored
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.leases import why_over
from perago.runtime.worker.outbox import Outbox

log = logging.getLogger("perago.courier")

BACKOFF = Backoff(0.1, longest=10.0, jitter=(0.5, 1.0))
LEASE_SECONDS = 3600.0
"""Maximum time for which an open task's lease is extended while its result is waiting to be accepted."""
RECHECK_SECONDS = 10.0
"""Delay before a task is read again after its result was accepted.

By then, a server that has recovered has carried out earlier requests, even if its database was locked.
"""
ENDED_WITHOUT_RESULT = frozenset({"TIMED_OUT", "CANCELED", "SKIPPED"})
"""Statuses of a task that ended without a result from a worker."""


@dataclass(frozen=True, slots=True)
class ResultSender:
    """Sends results to the orchestrator on the scheduler's threads, and posts how each delivery went."""

    orchestrator: Orchestrator
    lake: StagingLake
    outbox: Outbox
    scheduler: JobScheduler
    worker_id: str
    reason_limit: int
    inbox: Inbox
    mask: Masker
    clock: Callable[[], float] = time.monotonic
    recheck_seconds: float = RECHECK_SECONDS

    def send(self, pending: PendingResult, first: Callable[[], None] | None = None) -> None:
        """Send one of this worker's results.  `first` is called beforehand, on the sending thread."""
        pending = self._sendable(pending)
        self._schedule(_SendJob(self, pending, first, in_outbox=self.keep(pending)))

    def resume(self, pending: PendingResult) -> None:
        """Send a result that an earlier worker left in the outbox, if it may still be sent."""
        self._schedule(_SendJob(self, self._sendable(pending), resumed=True, in_outbox=True))

    def keep(self, pending: PendingResult) -> bool:
        """Write a result to the outbox and return whether that worked.  Thread-safe."""
        try:
            self.outbox.put(pending)
        except Exception as error:
            # Not only a full disk: a result that cannot be encoded as JSON must not end the worker either.
            self.inbox.post(ResultStored(pending, error))
            return False
        self.inbox.post(ResultStored(pending))
        return True

    def _schedule(self, send_job: _SendJob) -> None:
        self.scheduler.add(("send", send_job.pending.execution_id), send_job)

    def _sendable(self, pending: PendingResult) -> PendingResult:
        return replace(pending, outcome=prepare_for_sending(pending.outcome, self.mask, self.reason_limit))

    def refused(self, pending: PendingResult, error: OrchestratorRefused) -> PendingResult:
        """Return the failure that is sent instead of a result that the server will never accept."""
        return self._sendable(replace(pending, outcome=result_refused(error), publication=None))


@dataclass(slots=True)
class _SendJob:
    """The scheduler job that sends one result, with retries."""

    sender: ResultSender
    pending: PendingResult
    first: Callable[[], None] | None = None
    resumed: bool = False
    in_outbox: bool = False
    may_be_sent: bool = field(default=False, init=False)
    accepted: DeliveryResult | None = field(default=None, init=False)
    failures: int = field(default=0, init=False)
    waits_since: float | None = field(default=None, init=False)
    waits_long: bool = field(default=False, init=False)
    lease_let_go: bool = field(default=False, init=False)

    def __call__(self) -> float | None:
        try:
            if self.first is not None:
                first, self.first = self.first, None
                first()
            if self.accepted is not None:
                return self._recheck(self.accepted)
            if self.resumed and not self.may_be_sent and (why := self._why_outdated()) is not None:
                return self._give_up(why)
            self.may_be_sent = True
            return self._complete()
        except Exception as error:
            # An error must neither lose a result nor leave it waiting without a report.
            return self._retry_later(error)

    def _complete(self) -> float | None:
        sender, pending = self.sender, self.pending
        try:
            sent = send(sender.orchestrator, pending, worker_id=sender.worker_id)
        except OrchestratorRefused as refused:
            if pending.outcome.status != "COMPLETED":
                return self._give_up(str(refused))
            log.error(
                "the orchestrator refused the result, sending FAILED instead: %s",
                refused,
                extra=self._fields(),
            )
            self.pending = sender.refused(pending, refused)
            self.in_outbox = sender.keep(self.pending)
            return 0.0
        if sent.accepted and sender.orchestrator.may_be_overwritten(
            pending.attempt, left_behind=self.resumed
        ):
            self.accepted = sent
            return sender.recheck_seconds
        return self._done(finish(sender.lake, sent))

    def _recheck(self, accepted: DeliveryResult) -> float | None:
        """Read the task once more after its result was accepted, and resend the result if a late update has undone it.

        The claim is kept until then, so that no twin publishes.
        """
        sender, pending = self.sender, self.pending
        try:
            found = sender.orchestrator.current(pending.attempt)
        except OrchestratorNotFound:
            return self._done(finish(sender.lake, accepted))
        if found.status in ENDED_WITHOUT_RESULT or found.retry_count != pending.attempt.retry_count:
            why = f"it was accepted, then undone by a late update, and now the task is {found.status}"
            return self._give_up(why)
        if why_over(pending.attempt, found) is None:
            log.warning(
                "the result was accepted, then undone by a late update; sending it again",
                extra=self._fields(),
            )
            if send(sender.orchestrator, pending, worker_id=sender.worker_id).accepted:
                return sender.recheck_seconds
            # Only a workflow that has ended rejects a result for an open task: it used the result accepted before.
        return self._done(finish(sender.lake, accepted))

    def _give_up(self, why: str) -> float | None:
        return self._done(give_up_on(self.sender.lake, self.pending, why))

    def _read_task(self) -> tuple[bool, str]:
        """Return (True, "") if the task is open, (False, reason) if its attempt is over, (False, "") if unknown."""
        attempt = self.pending.attempt
        try:
            over = why_over(attempt, self.sender.orchestrator.current(attempt))
        except OrchestratorNotFound as gone:
            return False, str(gone)
        except Exception as error:
            log.debug("could not read task %s either: %s", attempt.task_id, error)
            return False, ""
        return over is None, over or ""

    def _why_outdated(self) -> str | None:
        """Return why a result from an earlier worker must not be sent, or None if it may be sent."""
        sender, pending = self.sender, self.pending
        try:
            assert_current_attempt_snapshot(pending.attempt, sender.orchestrator.current(pending.attempt))
        except (StaleAttemptError, OrchestratorNotFound) as over:
            return str(over)
        published = pending.publication
        if published is None:
            return None
        why = invalid_publication_reason(sender.lake, published)
        if why is not None:
            # The attempt is still current, so a twin may be running: keep the claim.  The retry revokes it.
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
            # The next worker reads the task, finds that the attempt is over, and drops the entry.
            log.warning("could not delete a sent result from the outbox: %s", error, extra=self._fields())
        sender.inbox.post(delivery)
        return None

    def _retry_later(self, error: Exception) -> float | None:
        sender, now = self.sender, self.sender.clock()
        self.waits_since = now if self.waits_since is None else self.waits_since
        seconds = now - self.waits_since
        is_open, over = self._read_task() if seconds >= UNHEALTHY_AFTER_SECONDS else (False, "")
        if over and self.accepted is None:
            return self._give_up(over)
        lets_go = is_open and not self.lease_let_go and seconds >= LEASE_SECONDS
        delay = ResultDelayed(self.pending, seconds, str(error), let_go=lets_go)
        self._log_delay(delay, error)
        self.waits_long = self.waits_long or delay.too_long
        self.lease_let_go = self.lease_let_go or delay.let_go
        self.in_outbox = self.in_outbox or sender.keep(self.pending)
        sender.inbox.post(delay)
        self.failures += 1
        return BACKOFF.delay(self.failures)

    def _log_delay(self, delay: ResultDelayed, error: Exception) -> None:
        trace = None if isinstance(error, PeragoError) else error
        if delay.let_go:
            log.error(
                "the result has not been accepted for %.0f s although its task is open; its lease is no longer extended: %s",
                *(delay.seconds, error),
                extra=self._fields(),
            )
        elif delay.too_long and not self.waits_long:
            log.error(
                "the result has not been accepted for %.0f s, still retrying: %s",
                *(delay.seconds, error),
                extra=self._fields(),
                exc_info=trace,
            )
        elif not self.failures:
            log.warning(
                "could not send the result, will retry: %s", error, extra=self._fields(), exc_info=trace
            )

    def _fields(self) -> dict[str, object]:
        return {"attempt": attempt_fields(self.pending.attempt, self.pending.execution_id)}
