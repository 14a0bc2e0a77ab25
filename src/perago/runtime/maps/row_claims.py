"""Claims rows: reads what has happened to a row, and takes it, or says how it ended.

    the row's last slot is                      then
    nothing                                     take it
    COMPLETED                                   it is done
    another ending, of an earlier session       take it
    another ending, of this session             it failed; take it only if retries are left
    taken, and its execution left no ending     take it over; at the third in a row, it failed

An engine may run a row again whenever it likes: it lost an executor, or the answer of one.  Nothing of this asks whether
the execution before is dead.  One that lives finds its slot no longer the last, and is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perago.errors import LakeError, LakeNotFound
from perago.lake.base import Lake
from perago.protocol.metadata import KEY
from perago.protocol.outcome import executors_died
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.maps.plan import MOST_DEATHS, MapPlan, outcome_of
from perago.runtime.maps.record import Ended, MapRecord, RowClaim, Slot
from perago.runtime.maps.rows import Row, RowOutcome

_LONGEST_RANGE = 1024


@dataclass(frozen=True, slots=True)
class RowClaims:
    """Claims rows of one run for executions of this process."""

    lake: Lake
    record: MapRecord
    plan: MapPlan
    execution_id: Callable[[], str]

    def take(self, row: Row) -> RowClaim | RowOutcome:
        """Claim the row for a new execution, or return its outcome."""
        # Nearly every row is new: try slot 1 with one call, without reading the record.
        wanted = RowClaim(row.number, 1, self.execution_id(), self.plan.session, self._start(row))
        if self.record.add(wanted):
            return wanted
        while True:
            last = self.record.last(row.number)
            following = self._after(row, last) if last is not None else wanted
            if isinstance(following, RowOutcome):
                return following
            if self.record.add(following):
                return following if isinstance(following, RowClaim) else following.outcome

    def again(self, row: Row, ended: Ended) -> RowClaim | RowOutcome:
        """Claim the row again after an execution that just ended, or return its outcome."""
        following = self._after(row, ended)
        if isinstance(following, RowOutcome):
            return following
        if self.record.add(following):
            return following if isinstance(following, RowClaim) else following.outcome
        return self.take(row)

    def _after(self, row: Row, last: Slot) -> Slot | RowOutcome:
        """Return the slot after the row's last one, or the outcome if there is none."""
        if isinstance(last, Ended):
            return self._after_ending(row, last)
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
            last.ref or self._start(row),
            attempts=last.attempts + 1,
            tries=last.tries if same else 1,
            deaths=deaths,
        )

    def _after_ending(self, row: Row, last: Ended) -> Slot | RowOutcome:
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
        """Return the row's input commit; empty if its branch cannot be read, which the execution will report."""
        if row.ref or row.diagnostic:
            return row.ref
        try:
            return self.lake.head(row.repository, row.branch).id
        except LakeError:
            return ""

    def _start_again(self, row: Row, last: Ended) -> str:
        """Return the commit for a retry: the same one, so that an unrecorded publication is found, not built upon.

        A row without a ref that was refused because others moved the head starts from the new head, unless a commit in
        between is the row's own.
        """
        before = last.claim.ref
        if row.ref or not (last.refused or not before):
            return before
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


def why_no_start(lake: Lake, row: Row) -> LakeError:
    """Return why a row's branch cannot be read; existing names are not looked up, which would list every repository."""
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
