"""Revokes a step's dead attempts: drops their staging branches, stops their publish requests, and drops their claims.

    list branches → check that this attempt is current → drop staging branches → barrier → drop claims

A step has one current attempt.  So if this one is current *after* the branches were listed, every other attempt with a
branch in that list has ended for good.  Clocks do not decide this: scheduled times come from the orchestrator's wall
clock, which may go backwards and may differ between its nodes (decision 0038).  Scheduled times only select which
other attempts to ask about.

Dropping a staging branch does not stop a publish request that has already resolved it; the barrier does.  The claim is
dropped last, so a claim that still exists means that a barrier must still be sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable
from perago.lake.base import PublishingLake
from perago.orchestrator.base import AttemptReader
from perago.protocol.attempt import Attempt, AttemptSnapshot, assert_current_attempt_snapshot, is_over
from perago.protocol.names import InternalBranch, branches_to_revoke, is_slug, revoke_prefix
from perago.runtime.internal_branches import target_of_claim

log = logging.getLogger("perago.revoking")

CheckCurrent = Callable[[Sequence[InternalBranch]], None]
"""Raises unless this attempt is current and the attempts that own these branches have ended."""


def revoke(
    lake: PublishingLake,
    repository: str,
    attempt: Attempt,
    *,
    target: str,
    timeout: float,
    check_current: CheckCurrent,
) -> None:
    """Make sure that no other attempt of this step can still publish.  Raises `LakeError` if that is not certain.

    Raises `StaleAttemptError`, and drops nothing, if this attempt itself is not current.
    """
    found = lake.branches(repository, revoke_prefix(attempt))
    revoked = branches_to_revoke(attempt, [branch.name for branch in found])
    if not revoked:
        return
    check_current(revoked.not_earlier)
    for staging in revoked.stagings:
        log.info("revoked %s of a dead attempt", staging)
        lake.drop_branch(repository, staging)
    owed = {target_of_claim(lake, repository, claim, unnamed=target) for claim in revoked.claims}
    for branch in sorted(filter(None, owed)):
        lake.barrier(repository, branch, timeout)
    for claim in revoked.claims:
        log.info("revoked %s of a dead attempt", claim)
        lake.drop_branch(repository, claim)


def ask_for_current(
    orchestrator: AttemptReader, attempt: Attempt, others: Sequence[InternalBranch]
) -> AttemptSnapshot:
    """Return the orchestrator's snapshot of this attempt.  Raises `StaleAttemptError` if it is not current.

    Raises `OrchestratorUnavailable` while one of the attempts that own the branches `others` is still open: Conductor
    schedules a retry just before it closes the task being retried, and until then it is unknown which of the two is
    current.
    """
    fresh = orchestrator.current(attempt)
    assert_current_attempt_snapshot(attempt, fresh)
    for other in others:
        if not _is_over(orchestrator, other):
            raise OrchestratorUnavailable(
                f"task {other.task_id} of the same step is open beside task {attempt.task_id}"
            )
    return fresh


def _is_over(orchestrator: AttemptReader, owner: InternalBranch) -> bool:
    # A slug stands for an id that is not valid in a branch name; the orchestrator cannot look it up.
    if is_slug(owner.task_id):
        return True
    task = Attempt(owner.workflow, owner.task_id, "", "", retry_count=0, seq=0, iteration=0)
    try:
        return is_over(orchestrator.current(task), owner.scheduled_time)
    except OrchestratorNotFound:
        return True
