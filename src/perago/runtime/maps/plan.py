"""The plan of a map: a single value, sent to each process, with everything that the process needs to run rows.

The plan contains the lake's credentials.  It is sent to an engine's executors as data, but is never part of a
configuration that is displayed (docs/decisions/0021).

This module also converts an execution's result to the outcome of its row, and writes the table of outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from perago.backend import Backend
from perago.protocol.ledger import Recompute
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.maps.record import RowClaim
from perago.runtime.maps.rows import Row, RowOutcome, Status
from perago.runtime.maps.table import write_table

MOST_DEATHS = 3
"""After this many consecutive executions have died, their row fails, because the row itself may be the cause."""


@dataclass(frozen=True, slots=True)
class MapPlan:
    """Values shared by all rows in one session of a map run."""

    run: str
    started: int
    """The start of the run, in milliseconds since 1970."""
    session: str
    """The id of this invocation of the command.  A resumed run has several sessions."""
    target: str
    folder: Path
    """The command's working folder.  The target is relative to it."""
    task: str
    lake: Backend
    retries: int
    max_result_bytes: int | None = None
    log: Path | None = None
    """The file for the output of bodies on the command's machine; None if the engine collects their output."""
    full: bool = False
    """True if all files count as new, and no body is skipped."""
    force: bool = False
    """True if no body is skipped."""
    stays_at_input: bool = True
    """False if a row with a ref may start from the branch's head if it sees there what it sees at its ref."""

    def recompute(self, reference: str) -> Recompute:
        """Return the work that a row does again although nothing has changed, given the name of its step."""
        return Recompute(self.full, frozenset((reference,) if self.force else ()))


COLUMNS = (
    "row",
    "repository",
    "branch",
    "status",
    "reason",
    "ref",
    "published",
    "attempts",
    "seconds",
    "steps",
    "downloaded",
    "uploaded",
    "saved",
    "changed",
    "deleted",
    "result",
)


def outcome_of(row: Row, claim: RowClaim, outcome: Outcome, result: ExecutionResult) -> RowOutcome:
    """Build a row's outcome from an execution's result.

    Must not be called with the outcome of a stale execution, which is never reported.
    """
    output = outcome.output or {}
    return RowOutcome(
        row=row.number,
        repository=row.repository,
        branch=row.branch,
        status=cast(Status, outcome.status),
        reason=outcome.reason or "",
        ref=claim.ref,
        published=str(output.get("workspace", {}).get("ref", "")),
        attempts=claim.attempts,
        seconds=round(sum(result.seconds.values()), 4),
        steps={step: round(took, 4) for step, took in result.seconds.items()},
        downloaded=result.moved.downloaded,
        uploaded=result.moved.uploaded,
        saved=result.moved.saved,
        changed=result.seen.changed,
        deleted=result.seen.deleted,
        # A run that was opened is known by its workspaces.
        result=output if "origin" in output else output.get("result"),
        partition=row.partition,
    )


def write_outcomes(path: Path, outcomes: Iterable[RowOutcome]) -> None:
    """Write the table of outcomes in row order.  Those of a backfill have a column with the row's partition."""
    ordered = sorted(outcomes, key=lambda one: one.row)
    columns = (*COLUMNS, "partition") if any(one.partition for one in ordered) else COLUMNS
    write_table(path, columns, (one.to_json() for one in ordered))
