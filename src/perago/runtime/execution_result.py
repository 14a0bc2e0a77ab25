"""The execution result that a transaction hands over, and the pending result made from it.

They cross every boundary: from the transaction to its executor, through the pipe to the supervisor, into the outbox and
to the orchestrator.  So they are plain data and belong to no component.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.lake.base import FenceLevel
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import CheckRecord, SparkFigures
from perago.protocol.outcome import Outcome
from perago.protocol.provenance import UNKNOWN, Provenance
from perago.protocol.worker_faults import WorkerFault


@dataclass(frozen=True, slots=True)
class BytesMoved:
    """Bytes moved by one execution.  `saved` counts input and result bytes that did not have to be moved."""

    downloaded: int = 0
    uploaded: int = 0
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Observations:
    """Human-readable observations about an execution, in addition to its outcome."""

    checks: tuple[CheckRecord, ...] = ()
    """The evaluated checks, in order."""
    changed: int = 0
    deleted: int = 0
    """`changed` and `deleted`: the numbers of files that the publication wrote and removed."""
    replaced_unsigned: str = ""
    """The tag that keeps the commit that the publication replaced although no task had signed it; usually empty."""
    skipped: str = ""
    """The publication since which nothing has changed, if the body was skipped; usually empty."""
    trace: tuple[str, ...] = ()
    """The lines of the user traceback, if user code raised an exception."""
    spark: SparkFigures | None = None
    """The work that Spark did, or None if the task is no Spark task or nothing is known."""
    made_with: Provenance = UNKNOWN
    packages: tuple[str, ...] = ()
    """The installed distributions, if the task log of this execution lists them."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The branch that made this execution the attempt's publisher.  Dropped after the orchestrator has responded."""

    repository: str
    branch: str


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The outcome of an execution, with its figures and its claim.

    The claim is dropped after the result has been sent.
    """

    outcome: Outcome
    claim: Claim | None = None
    fence_level: FenceLevel | None = None
    step: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    refused: bool = False
    """True if the publish fence ended the execution."""
    moved: BytesMoved = field(default_factory=BytesMoved)
    worker_fault: WorkerFault | None = None
    """The reason why the worker, rather than the task, failed; None if it did not."""
    seen: Observations = field(default_factory=Observations)
    tries: int = 0
    """The number of times that the execution tried to move the branch."""
    view: tuple[str, ...] | None = None
    """The task's view as object paths; set only if the task publishes on top of others' commits."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The published commit, which was the branch's head when the publish was settled.

    If `view` is set, others may publish on top of it.  In that case, the publication is valid as long as the commit is
    on the branch and the task's view has not changed since.
    """

    repository: str
    branch: str
    ref: str
    view: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PendingResult:
    """A result to send.

    The publication must still be valid when the result is sent.  The claim is dropped afterwards.
    """

    execution_id: str
    attempt: Attempt
    outcome: Outcome
    publication: Publication | None = None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The outcome of sending a result; `reason` says why it was not accepted."""

    pending: PendingResult
    accepted: bool
    reason: str = ""


def pending_result_of(execution_id: str, assignment: Assignment, result: ExecutionResult) -> PendingResult:
    """Convert an execution's result to a pending result, ready to be sent."""
    publication = _publication(assignment.input, result.outcome, result.view)
    return PendingResult(execution_id, assignment.attempt, result.outcome, publication, result.claim)


def _publication(
    given: Mapping[str, Any], outcome: Outcome, view: tuple[str, ...] | None
) -> Publication | None:
    """Return the commit that a COMPLETED result published, or None if the result is the unchanged input."""
    workspace = (outcome.output or {}).get("workspace")
    if outcome.status != "COMPLETED" or workspace is None:
        return None
    sent = given["workspace"]
    # After a join, an output whose input is unchanged names the last of the joined workspaces.
    if any(_is_unchanged(workspace, one) for one in (sent if isinstance(sent, list) else [sent])):
        return None
    return Publication(workspace["repository"], workspace["branch"], workspace["ref"], view)


def _is_unchanged(workspace: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    # The step that opens a run may have been given a branch without a ref.
    return (
        workspace["branch"] == sent["branch"] and "ref" in sent and workspace["ref"].startswith(sent["ref"])
    )
