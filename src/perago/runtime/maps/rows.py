"""The rows of a map, their outcomes, and the failures that rows have in common.

Rows and outcomes are sent between processes and machines, so they are plain data.  An outcome is stored as JSON in the
run's record, and becomes a row in the table of outcomes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "UNSETTLED"]
UNSETTLED: Status = "UNSETTLED"
"""The outcome is not known yet: the record was unreachable, or another execution has claimed the row.

It is never recorded.
"""
_ROWS_NAMED = 5
_ID = re.compile(r"[0-9a-f]{12,}")
"""Matches a commit, execution or branch id, which differs between rows that fail for the same reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workspace to run the task on.  An empty `ref` means the branch's head."""

    number: int
    """The row's number, starting at 1.  The table's header is not counted."""
    repository: str
    branch: str
    ref: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    diagnostic: str = ""
    """The reason why the row cannot run at all; empty if it can."""
    partition: Mapping[str, str] = field(default_factory=dict)
    """The params that name the row's partition, as text; empty unless the row belongs to a backfill."""

    @property
    def label(self) -> str:
        """The label that identifies the row in messages."""
        return _label(self.number, self.partition or f"{self.repository}@{self.branch}")


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The outcome of a row after all its attempts.  Its figures are those of the last attempt."""

    row: int
    repository: str
    branch: str
    status: Status
    reason: str = ""
    ref: str = ""
    """The input commit of the last attempt."""
    published: str = ""
    """The commit that contains the row's result; the same as `ref` if nothing changed."""
    attempts: int = 0
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    """The duration of each step, in seconds."""
    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0
    """`downloaded`, `uploaded` and `saved`: numbers of bytes.  `saved` counts bytes that did not have to be moved."""
    changed: int = 0
    deleted: int = 0
    """`changed` and `deleted`: the numbers of files that the publication wrote and removed."""
    result: Mapping[str, Any] | None = None
    partition: Mapping[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """True if the row is COMPLETED and needs no more work."""
        return self.status == "COMPLETED"

    @property
    def label(self) -> str:
        """The label that identifies the row in messages."""
        return _label(self.row, self.partition or f"{self.repository}@{self.branch}")

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def unsettled(row: Row, reason: str, *, attempts: int = 0) -> RowOutcome:
    """Return an UNSETTLED outcome for a row."""
    return RowOutcome(
        row.number,
        row.repository,
        row.branch,
        UNSETTLED,
        reason,
        ref=row.ref,
        attempts=attempts,
        partition=row.partition,
    )


def partition_text(partition: Mapping[str, str]) -> str:
    """Return a partition as people read it, such as `day=2026-01-31, region=eu`."""
    return ", ".join(f"{name}={text}" for name, text in partition.items())


def _label(number: int, what: Mapping[str, str] | str) -> str:
    return f"row {number} ({what if isinstance(what, str) else partition_text(what)})"


def input_of(row: Row, ref: str) -> dict[str, Any]:
    """Return the task's input for a row."""
    workspace = {"repository": row.repository, "branch": row.branch, "ref_type": "commit", "ref": ref}
    return {"workspace": workspace, "params": row.params}


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Rows that failed for the same reason.  `reason` is that of the first one."""

    status: Status
    reason: str
    rows: tuple[int, ...]

    def __str__(self) -> str:
        """Return the group as one line, with the numbers of the first rows."""
        if len(self.rows) == 1:
            return f"row {self.rows[0]}: {self.status}: {self.reason}"
        more = ", …" if len(self.rows) > _ROWS_NAMED else ""
        numbers = ", ".join(map(str, self.rows[:_ROWS_NAMED]))
        return f"{len(self.rows)} rows ({numbers}{more}): {self.status}: {self.reason}"


def failure_groups(outcomes: Iterable[RowOutcome]) -> list[FailureGroup]:
    """Group the rows that are not COMPLETED by status and reason, the largest group first."""
    groups: dict[tuple[str, str], list[RowOutcome]] = {}
    for one in sorted(outcomes, key=lambda one: one.row):
        if not one.done:
            groups.setdefault(failure_kind(one), []).append(one)
    found = [
        FailureGroup(same[0].status, same[0].reason, tuple(one.row for one in same))
        for same in groups.values()
    ]
    return sorted(found, key=lambda group: (-len(group.rows), group.rows))


def failure_kind(outcome: RowOutcome) -> tuple[str, str]:
    """Return a key that is equal for rows that failed for the same reason.

    The names of the row's own repository, branch and partition, and all ids, do not count.
    """
    reason = _ID.sub("#", outcome.reason)
    for own in (outcome.repository, outcome.branch, *outcome.partition.values()):
        if own:
            reason = re.sub(rf"(?<![\w-]){re.escape(own)}(?![\w-])", "#", reason)
    return outcome.status, reason
