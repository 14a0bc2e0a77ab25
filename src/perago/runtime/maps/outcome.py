"""From how an execution ended to the outcome of its row, and to the table of outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from perago.protocol.outcome import Outcome
from perago.runtime.ending import Settled
from perago.runtime.maps.record import Taken
from perago.runtime.maps.row import Row, RowOutcome, Status
from perago.runtime.maps.table import write_table

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


def outcome_of(row: Row, taken: Taken, outcome: Outcome, settled: Settled) -> RowOutcome:
    """What an execution has to say of its row; one that must keep silent is stale, and nobody takes it."""
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
