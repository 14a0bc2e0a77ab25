"""Values that pass between place, staging, publisher and transaction: the result, the decision, the publication.

A place says where the bytes are, never how they get to the lake, so place and staging do not know each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perago.lake.base import Merge
from perago.protocol.changes import Changes, FileState
from perago.protocol.publication import StagedWorkspace
from perago.runtime.attempt.listing import Listing


@dataclass(frozen=True, slots=True)
class OnBranch:
    """Bytes that are already on the execution's staging branch, uncommitted."""

    name: str


@dataclass(frozen=True, slots=True)
class Result:
    """A result to publish: the whole view as it should be, how that differs from A, and where its bytes are."""

    states: Mapping[str, FileState]
    changes: Changes
    recorded: str | None
    source: Path | OnBranch
    """The folder that holds the files, or the branch that holds the objects."""
    base: Listing | None = None
    """The listing of A, if it was read."""


@dataclass(frozen=True, slots=True)
class Published:
    """The ref for the output; `recorded` is the recorded result if the commit is earlier, equal work."""

    ref: str
    recorded: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The next step: merge the staged commit."""

    staged: StagedWorkspace
    merge: Merge


@dataclass(frozen=True, slots=True)
class RelocatePlan:
    """The next step: tag the abandoned publication `head`, then move the branch from it to the staged commit."""

    staged: StagedWorkspace
    head: str


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The branch had moved and nothing was published, for certain: decide again after the pause."""

    pause: float


Move = MergePlan | RelocatePlan
Decision = Published | Move
"""`Published` means that no branch has to be moved."""
