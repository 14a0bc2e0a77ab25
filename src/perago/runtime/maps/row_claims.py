"""Claims rows: reads what has happened to a row, and either claims it or returns its outcome.

    last slot of the row                         action
    none                                         claim the row
    COMPLETED                                    the row is done
    another outcome, from an earlier session     claim the row
    another outcome, from this session           the row has failed; claim it only if retries are left
    a claim without an outcome                   claim the row; after three such claims in succession, it has failed

An engine may rerun a row at any time, because it lost an executor or an executor's response.  Claiming never checks
whether the previous execution is dead: if it is alive, it finds that its slot is no longer the last one, and is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perago.errors import LakeError, LakeNotFound
from perago.lake.base import StagingLake
from perago.protocol.metadata import KEY
from perago.protocol.outcome import executors_died
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.maps.plan import MOST_DEATHS, MapPlan, outcome_of
from perago.runtime.maps.record import Ended, MapRecord, RowClaim, Slot
from perago.runtime.maps.rows import Row, RowOutcome

_LONGEST_RANGE = 1024


@dataclass(frozen=True, slots=True)
class RowClaims:
    """Claims rows of one run on behalf of executions in this process."""

    lake: StagingLake
    record: MapRecord
    plan: MapPlan
    execution_id: Callable[[], str]
    sees_the_same: Callable[[Row, str], bool] = lambda _row, _ref: False
    """Returns whether a row sees the same at a commit as at its own ref."""

    def claim(self, row: Row) -> RowClaim | RowOutcome:
        """Claim the row for a new execution.  Returns the row's outcome instead if the row has already finished."""
        # Nearly every row is new: try slot 1 with one call, without reading the record.
        wanted = RowClaim(row.number, 1, self.execution_id(), self.plan.session, self._start(row))
        if self.record.add(wanted):
            return wanted
        while True:
            last = self.record.last(row.number)
            following = self._next_slot(row, last) if last is not None else wanted
            if isinstance(following, RowOutcome):
                return following
            if self.record.add(following):
                return following if isinstance(following, RowClaim) else following.outcome

    def reclaim(self, row: Row, ended: Ended) -> RowClaim | RowOutcome:
        """Claim the row again, now that its last execution has ended.

        Returns the row's outcome instead if the row must not be retried.
        """
        following = self._next_slot(row, ended)
        if isinstance(following, RowOutcome):
            return following
        if self.record.add(following):
            return following if isinstance(following, RowClaim) else following.outcome
        return self.claim(row)

    def _next_slot(self, row: Row, last: Slot) -> Slot | RowOutcome:
        """Return the next slot to add to the row's record, or the row's outcome if the row has already finished."""
        if isinstance(last, Ended):
            return self._next_slot_after_end(row, last)
        same = last.session == self.plan.session
        deaths = last.deaths + 1 if same else 0
        if deaths >= MOST_DEATHS:
            died = executors_died(deaths)
            return Ended(last, outcome_of(row, last, died, ExecutionResult(died)))
        return RowClaim(
            row.number,
            last.slot + 1,
            self.execution_id(),
            self.plan.session,
            self._restart(row, last.ref),
            attempts=last.attempts + 1,
            tries=last.tries if same else 1,
            deaths=deaths,
        )

    def _next_slot_after_end(self, row: Row, last: Ended) -> Slot | RowOutcome:
        claim, outcome = last.claim, last.outcome
        same = claim.session == self.plan.session
        over = outcome.status == "FAILED_WITH_TERMINAL_ERROR" or claim.tries > self.plan.retries
        if outcome.done or (same and over):
            return outcome
        return RowClaim(
            row.number,
            last.slot + 1,
            self.execution_id(),
            self.plan.session,
            self._start_again(row, last),
            attempts=claim.attempts + 1,
            tries=claim.tries + 1 if same else 1,
        )

    def _start(self, row: Row) -> str:
        """Return the row's input commit.

        Returns an empty string if the branch cannot be read.  The execution then reports the error.
        """
        if row.ref or row.diagnostic:
            return self._moved(row) or row.ref
        try:
            return self.lake.head(row.repository, row.branch).id
        except LakeError:
            return ""

    def _moved(self, row: Row) -> str:
        """Return the branch's head if the row sees there what it sees at its ref, and an empty string otherwise.

        A backfill of many rows leaves the commit behind from which all of them read, and a publication looks back a
        limited number of commits.  To a row that sees the same, both commits are the same input.  That includes its
        output: if an execution that died has published, the row stays at its ref, finds the publication, and replaces it.
        """
        if self.plan.stays_at_input or not row.ref or row.diagnostic:
            return ""
        try:
            head = self.lake.head(row.repository, row.branch).id
            return head if head == row.ref or self.sees_the_same(row, head) else ""
        except LakeError:
            return ""

    def _start_again(self, row: Row, last: Ended) -> str:
        """Return the input commit for a retry.

        It is normally the same commit, so that an unrecorded publication is found instead of being built upon.  But if
        the table gives no ref for the row, and the row was refused because others moved the head, the retry starts from
        the new head, unless one of the commits in between is the row's own.
        """
        before = self._moved(row) or last.claim.ref
        if row.ref or not (last.refused or not before or not self.plan.stays_at_input):
            return before
        return self._past_others(row, before)

    def _restart(self, row: Row, before: str) -> str:
        """Return the input commit for a row whose last execution has died."""
        if moved := self._moved(row):
            return moved
        if row.ref or self.plan.stays_at_input:
            return before or self._start(row)
        # The rows of this backfill run one after another: others have published since.
        return self._past_others(row, before)

    def _past_others(self, row: Row, before: str) -> str:
        """Return the branch's head, or `before` if one of the commits in between is the row's own."""
        try:
            head = self._start(row)
            if not before or not head:
                return head
            for commit in self.lake.log(row.repository, head, _LONGEST_RANGE):
                if commit.id == before:
                    return head
                if commit.metadata.get(KEY) == f"{self.plan.run}/row_{row.number}":
                    return before
        except LakeError:
            return before
        return before


def why_no_start(lake: StagingLake, row: Row) -> LakeError:
    """Return why a row's branch cannot be read.

    Existing names are not suggested, because that would mean listing every repository.
    """
    try:
        lake.head(row.repository, row.branch)
    except LakeNotFound as error:
        return LakeNotFound(
            f"there is no repository {row.repository!r} with a branch {row.branch!r} ({error}): correct the table, or "
            "make the branch"
        )
    except LakeError as error:
        return error
    return LakeError(f"branch {row.branch!r} could not be read when the row started")
