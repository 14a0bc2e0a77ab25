"""Sends results until the orchestrator has answered, and drops what was kept for that.

    outbox → [what comes first] → complete, again and again → drop the claim → drop the outbox entry → report

The claim goes only when the orchestrator has answered: until then a twin must find it taken.  A result that an
earlier worker left in the outbox is sent only while its attempt is current and, where it published, its commit is
still the branch's head.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from perago.errors import (
    LakeError,
    LakeNotFound,
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    StaleAttemptError,
)
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.protocol.outcome import Outcome, sendable
from perago.runtime.logs import attempt_fields
from perago.runtime.outbox import Outbox, Parcel
from perago.runtime.publish import drop_quietly
from perago.runtime.timetable import Timetable

log = logging.getLogger("perago.courier")

LONGEST_PAUSE = 10.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """How sending a result ended; `reason` says why it was not accepted."""

    parcel: Parcel
    accepted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Courier:
    """Carries parcels to the orchestrator; `delivered` is called from one of the timetable's threads."""

    orchestrator: Orchestrator
    lake: Lake
    outbox: Outbox
    timetable: Timetable
    worker_id: str
    reason_limit: int
    delivered: Callable[[Delivery], None]
    mask: Callable[[str], str]

    def send(self, parcel: Parcel, first: Callable[[], None] | None = None) -> None:
        """Send a result of this worker; `first` is done before, on the sending thread."""
        parcel = self._sendable(parcel)
        self.outbox.put(parcel)
        self._take(_Errand(self, parcel, first))

    def resume(self, parcel: Parcel) -> None:
        """Send a result that an earlier worker left behind, if it still may be."""
        self._take(_Errand(self, self._sendable(parcel), resumed=True))

    def _take(self, errand: _Errand) -> None:
        self.timetable.add(("send", errand.parcel.execution_id), errand)

    def _sendable(self, parcel: Parcel) -> Parcel:
        return replace(parcel, outcome=sendable(parcel.outcome, self.mask, self.reason_limit))

    def refused(self, parcel: Parcel, error: OrchestratorRefused) -> Parcel:
        """What is said in place of a result that the server will never take."""
        reason = f"the result was refused: {error}"
        return self._sendable(replace(parcel, outcome=Outcome("FAILED", reason=reason), publication=None))


@dataclass(slots=True)
class _Errand:
    """One result under way; a job of the timetable."""

    courier: Courier
    parcel: Parcel
    first: Callable[[], None] | None = None
    resumed: bool = False
    failures: int = field(default=0, init=False)

    def __call__(self) -> float | None:
        try:
            if self.first is not None:
                first, self.first = self.first, None
                first()
            if self.resumed and (why := self._why_not_any_more()) is not None:
                return self._done(accepted=False, reason=why)
            self.resumed = False
            return self._complete()
        except (OrchestratorError, LakeError) as error:
            return self._later(error)

    def _complete(self) -> float | None:
        courier, parcel = self.courier, self.parcel
        try:
            accepted = courier.orchestrator.complete(
                parcel.attempt, parcel.outcome, worker_id=courier.worker_id
            )
        except OrchestratorNotFound as gone:
            return self._done(accepted=False, reason=str(gone))
        except OrchestratorRefused as refused:
            if parcel.outcome.status != "COMPLETED":
                return self._done(accepted=False, reason=str(refused))
            log.error("a result is sent as FAILED: %s", refused, extra=self._fields())
            self.parcel = courier.refused(parcel, refused)
            courier.outbox.put(self.parcel)
            return 0.0
        return self._done(accepted=accepted, reason="" if accepted else "the task was over already")

    def _why_not_any_more(self) -> str | None:
        """Why a result that was left behind must not be sent, or None."""
        courier, parcel = self.courier, self.parcel
        try:
            assert_current_attempt_snapshot(parcel.attempt, courier.orchestrator.current(parcel.attempt))
        except (StaleAttemptError, OrchestratorNotFound) as over:
            return str(over)
        published = parcel.publication
        if published is None:
            return None
        try:
            head = courier.lake.head(published.repository, published.branch).id
        except LakeNotFound as gone:
            head = str(gone)
        if head != published.ref:
            # The attempt is still current, so a twin of it may be at work: the claim stays, the retry revokes it.
            self.parcel = replace(parcel, claim=None)
            return f"it published {published.ref}, but {published.branch!r} is at {head} now"
        return None

    def _done(self, *, accepted: bool, reason: str) -> float | None:
        courier, parcel = self.courier, self.parcel
        if not accepted:
            log.warning(
                "the result %s was not accepted: %s", parcel.outcome.status, reason, extra=self._fields()
            )
        if parcel.claim is not None:
            drop_quietly(courier.lake, parcel.claim.repository, parcel.claim.branch)
        courier.outbox.drop(parcel.execution_id)
        courier.delivered(Delivery(parcel, accepted, reason))
        return None

    def _later(self, error: Exception) -> float:
        if not self.failures:
            log.warning("a result is not sent yet, and tried again: %s", error, extra=self._fields())
        pause = min(LONGEST_PAUSE, 0.1 * 2.0**self.failures) * random.uniform(0.5, 1.0)
        self.failures = min(self.failures + 1, 10)
        return pause

    def _fields(self) -> dict[str, object]:
        return {"attempt": attempt_fields(self.parcel.attempt, self.parcel.execution_id)}
