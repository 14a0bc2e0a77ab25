"""What an execution has to publish, what is decided about it, and what it has published: values, nothing else.

A place says where the bytes are and never how they get to the lake, so neither has to know the other.
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
    """Bytes that are on the execution's staging branch already, uncommitted."""

    name: str


@dataclass(frozen=True, slots=True)
class Result:
    """What an execution has to publish: the whole view as it should be, how that differs from A, and its bytes."""

    states: Mapping[str, FileState]
    changes: Changes
    recorded: str | None
    source: Path | OnBranch
    """The folder that holds the files, or the branch that holds the objects."""
    base: Listing | None = None
    """A as it was read, where it was."""


@dataclass(frozen=True, slots=True)
class Published:
    """The ref to answer with; `recorded` is the result of earlier, equal work that it stands for."""

    ref: str
    recorded: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """Left to do: merge what is staged."""

    staged: StagedWorkspace
    merge: Merge


@dataclass(frozen=True, slots=True)
class RelocatePlan:
    """Left to do: keep the abandoned publication `head` under a tag, then move the branch from it to what is staged."""

    staged: StagedWorkspace
    head: str


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The branch had moved: nothing was published, for certain, and after a pause it is decided anew."""

    pause: float


Move = MergePlan | RelocatePlan
Decision = Published | Move
"""`Published`: there is nothing to move, and this is the answer."""
