"""Everything that a process needs to run rows of a map, as one value that travels to it.

It holds the keys to the lake.  It goes inside what an engine sends to its executors, never into a configuration that is
shown (docs/decisions/0021).

From how an execution ended to the outcome of its row, and to the table of outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from perago.backend import Backend
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.maps.record import RowClaim
from perago.runtime.maps.rows import Row, RowOutcome, Status
from perago.runtime.maps.table import write_table

MOST_DEATHS = 3
"""After this many consecutive dead executions a row has failed: it may be the cause."""


@dataclass(frozen=True, slots=True)
class MapPlan:
    """The values that are the same for all rows in one session of a map run."""

    run: str
    started: int
    """The run's start, in milliseconds since 1970."""
    session: str
    """The id of this command; a resumed run has several sessions."""
    target: str
    folder: Path
    """The command's working folder, which the target is relative to."""
    task: str
    lake: Backend
    retries: int
    max_result_bytes: int | None = None
    log: Path | None = None
    """The file for the output of bodies on the command's machine; None if the engine collects it."""


def map_log(root: Path, run: str) -> Path:
    """Return the file for the output of bodies on this machine; creates its folder."""
    folder = root / "maps"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / f"{run}.log"


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


def outcome_of(row: Row, claim: RowClaim, outcome: Outcome, settled: ExecutionResult) -> RowOutcome:
    """Build the row's outcome from an execution's result.  Stale executions must not report one."""
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
        seconds=round(sum(settled.seconds.values()), 4),
        steps={step: round(took, 4) for step, took in settled.seconds.items()},
        downloaded=settled.moved.downloaded,
        uploaded=settled.moved.uploaded,
        saved=settled.moved.saved,
        changed=settled.seen.changed,
        deleted=settled.seen.deleted,
        result=output.get("result"),
    )


def write_outcomes(path: Path, outcomes: Iterable[RowOutcome]) -> None:
    """Write the table of outcomes, in the order of the rows."""
    ordered = sorted(outcomes, key=lambda one: one.row)
    write_table(path, COLUMNS, (one.to_json() for one in ordered))
