"""Values passed between place, staging, publisher and transaction: the result, the decision and the publication.

A place (the workdir or branch where a body works) says where the bytes are, but not how they get to the lake.  So place
and staging do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perago.lake.base import Merge
from perago.protocol.changes import Changes, FileState
from perago.protocol.publication import Commit, StagedWorkspace
from perago.runtime.attempt.listing import Listing


@dataclass(frozen=True, slots=True)
class OnBranch:
    """A staging branch that already contains the result's bytes, as uncommitted changes."""

    name: str
    check_commit: Callable[[str], None] = lambda _commit: None
    """Raises if the commit of these changes contains more than the result."""


@dataclass(frozen=True, slots=True)
class Result:
    """A result to publish: the complete view, its changes since the input commit, and the location of its bytes."""

    states: Mapping[str, FileState]
    changes: Changes
    recorded: str | None
    source: Path | OnBranch
    """The folder that contains the files, or the branch that contains the objects."""
    base: Listing | None = None
    """The listing of the input commit, if it was read."""


@dataclass(frozen=True, slots=True)
class Published:
    """Nothing is left to do: `ref` goes into the output.

    `recorded` is the recorded result if an earlier publication of the same work was reused.
    """

    ref: str
    recorded: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """The next step: merge the staged commit into the target branch."""

    staged: StagedWorkspace
    merge: Merge


@dataclass(frozen=True, slots=True)
class RelocatePlan:
    """The next step: tag the abandoned publication `head`, then move the branch from it to the staged commit."""

    staged: StagedWorkspace
    head: str
    tag: str = ""
    unsigned: Commit | None = None
    """The head, if no task signed it.  Somebody may have made it by hand."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The next step: decide again after `pause` seconds.

    The branch had moved, and it is certain that nothing was published.
    """

    pause: float


Move = MergePlan | RelocatePlan
Decision = Published | Move
"""The next step of a publication.  `Published` means that no branch has to be moved."""
