"""How an execution ended, as a value: what the transaction hands over, and the parcel that is sent of it.

It crosses every border: from the transaction to its executor, over the pipe to the supervisor, into the outbox and to
the orchestrator.  So it is plain data, and nobody's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.lake.base import FenceLevel
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import CheckRecord
from perago.protocol.outcome import Outcome
from perago.protocol.worker_faults import OwnReason


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Bytes of one execution; `saved` are those of its input and its result that were not moved."""

    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Observations:
    """What people are shown of an execution, besides its outcome."""

    checks: tuple[CheckRecord, ...] = ()
    """Those that were evaluated, in order."""
    changed: int = 0
    deleted: int = 0
    """Files that its publication put and removed."""
    trace: tuple[str, ...] = ()
    """The lines of the traceback, where the author's code raised."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The branch that made this execution the attempt's publisher; to be dropped once the result is accepted."""

    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How an execution ended, and what is left to do after its result is sent."""

    outcome: Outcome
    claim: Claim | None = None
    fence_level: FenceLevel | None = None
    step: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    refused: bool = False
    """Whether the publish fence ended it."""
    moved: BytesMoved = field(default_factory=BytesMoved)
    own_reason: OwnReason | None = None
    """Why the worker itself could not do it, where it is the worker that failed and not the task."""
    seen: Observations = field(default_factory=Observations)
    tries: int = 0
    """How many calls to move the branch it made."""
    view: tuple[str, ...] | None = None
    """What the task sees, as object paths; only where it publishes on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What an execution made visible: the commit that was the branch's head when it was settled.

    With a `view`, others may have published since: the commit is on the branch, and what the task sees is unchanged.
    """

    repository: str
    branch: str
    ref: str
    view: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PendingResult:
    """One result to send, and what must hold or be done around that."""

    execution_id: str
    attempt: Attempt
    outcome: Outcome
    publication: Publication | None = None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How sending a result ended; `reason` says why it was not accepted."""

    pending: PendingResult
    accepted: bool
    reason: str = ""


def pending_result_of(execution_id: str, assignment: Assignment, settled: ExecutionResult) -> PendingResult:
    """The result of an execution as it is sent."""
    publication = _publication(assignment.input, settled.outcome, settled.view)
    return PendingResult(execution_id, assignment.attempt, settled.outcome, publication, settled.claim)


def _publication(
    given: Mapping[str, Any], outcome: Outcome, view: tuple[str, ...] | None
) -> Publication | None:
    """The head that a COMPLETED result speaks of; none where it kept its input."""
    workspace = (outcome.output or {}).get("workspace")
    if outcome.status != "COMPLETED" or workspace is None:
        return None
    sent = given["workspace"]
    # Of several that were joined, an output that keeps its input names the last.
    if any(workspace["ref"].startswith(one["ref"]) for one in (sent if isinstance(sent, list) else [sent])):
        return None
    return Publication(workspace["repository"], workspace["branch"], workspace["ref"], view)
