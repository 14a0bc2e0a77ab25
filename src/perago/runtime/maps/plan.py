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
"""A row whose executions died so often, one after the other, has failed: it may be what kills them."""


@dataclass(frozen=True, slots=True)
class MapPlan:
    """One task over a table, in one session of a run: what is the same for all rows."""

    run: str
    started: int
    """The run's beginning, in milliseconds since 1970."""
    session: str
    """This command: a run that is resumed has several."""
    target: str
    folder: Path
    """Where the target's name means something: the command's current folder."""
    task: str
    lake: Backend
    retries: int
    max_result_bytes: int | None = None
    log: Path | None = None
    """Where bodies print to, on the machine of the command; None elsewhere, where the engine keeps it."""


def map_log(root: Path, run: str) -> Path:
    """The file that a map's bodies print to, where they run on this machine; its folder is made."""
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


def outcome_of(row: Row, taken: RowClaim, outcome: Outcome, settled: ExecutionResult) -> RowOutcome:
    """Build the row's outcome from an execution's result.  Stale executions must not report one."""
    output = outcome.output or {}
    return RowOutcome(
        row=row.number,
        repository=row.repository,
        branch=row.branch,
        status=cast(Status, outcome.status),
        reason=outcome.reason or "",
        ref=taken.ref,
        published=str(output.get("workspace", {}).get("ref", "")),
        attempts=taken.attempts,
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
    """The table of outcomes, in the order of the rows."""
    ordered = sorted(outcomes, key=lambda one: one.row)
    write_table(path, COLUMNS, (one.to_json() for one in ordered))
