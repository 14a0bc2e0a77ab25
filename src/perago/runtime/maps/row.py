"""What a map runs and what comes of it, as values: a row of the table, and its outcome.

Both cross processes and machines, so they are plain data.  An outcome is JSON in the run's record, and a row of the table
of outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR", "UNSETTLED"]
UNSETTLED: Status = "UNSETTLED"
"""Nobody knows yet: the record could not be asked, or another execution has the row.  Never recorded."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workspace to run the task on; `ref` is empty where the branch's head is meant."""

    number: int
    """Counted from 1, without the table's header."""
    repository: str
    branch: str
    ref: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    mistake: str = ""
    """Why it cannot be run at all."""

    @property
    def label(self) -> str:
        """How people are told of it."""
        return f"row {self.number} ({self.repository}@{self.branch})"


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """How a row ended, after all its attempts; figures are those of the last one."""

    row: int
    repository: str
    branch: str
    status: Status
    reason: str = ""
    ref: str = ""
    """The commit that it worked on."""
    published: str = ""
    """The commit that holds its result; the same as `ref` where nothing changed."""
    attempts: int = 0
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    """Seconds by step."""
    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0
    """Bytes that moved, and bytes that did not need to."""
    changed: int = 0
    deleted: int = 0
    """Files that the publication put and removed."""
    result: Mapping[str, Any] | None = None

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do for the row."""
        return self.status == "COMPLETED"

    @property
    def label(self) -> str:
        """How people are told of it."""
        return f"row {self.row} ({self.repository}@{self.branch})"

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return asdict(self)


def unsettled(row: Row, reason: str, *, attempts: int = 0) -> RowOutcome:
    """What is told of a row that has no outcome yet."""
    return RowOutcome(
        row.number, row.repository, row.branch, UNSETTLED, reason, ref=row.ref, attempts=attempts
    )
