"""Taking away what a dead attempt could still publish with: its stagings, a request in flight, its claim.

    branches listed → this attempt is current → stagings dropped → barrier → claims dropped

A step has one current attempt.  So if this one is current *after* its branches were listed, every other attempt that has a
branch in that list is over, for good.  No clock is asked: scheduled times come from the orchestrator's wall clock, which
may go back, and its nodes may disagree (decision 0038).  They only choose whom to ask about as well.

Dropping a staging does not stop a publish request that has resolved it already; the barrier does.  The claim goes last,
so a claim that is found is a barrier that is owed: whoever sent none, or died before it, left the claim behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable
from perago.lake.base import Lake
from perago.orchestrator.base import AttemptReader
from perago.protocol.attempt import Attempt, AttemptSnapshot, assert_current_attempt_snapshot, is_over
from perago.protocol.names import InternalBranch, is_slug, revoke_prefix, revoked_by
from perago.runtime.internal_branches import target_of_claim

log = logging.getLogger("perago.revoking")

CheckCurrent = Callable[[Sequence[InternalBranch]], None]
"""Raises unless this attempt is current, and the attempts that these branches belong to are over."""


def revoke(
    lake: Lake,
    repository: str,
    attempt: Attempt,
    *,
    target: str,
    timeout: float,
    check_current: CheckCurrent,
) -> None:
    """Make sure that no other attempt of this step can publish any more; `LakeError` if not sure.

    `StaleAttemptError` if this attempt is not current itself; nothing is dropped then.
    """
    found = lake.branches(repository, revoke_prefix(attempt))
    revoked = revoked_by(attempt, [branch.name for branch in found])
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
    """Return what the orchestrator says of this attempt, which is current; `StaleAttemptError` if it is not.

    `OrchestratorUnavailable` while one of the others is open beside it: Conductor schedules a retry a moment before it
    closes the task that is retried, and until then it cannot be told which of the two is current.
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
    # An id that no branch name can hold was made into a slug, and nobody knows a task by that.
    if is_slug(owner.task_id):
        return True
    task = Attempt(owner.workflow, owner.task_id, "", "", retry_count=0, seq=0, iteration=0)
    try:
        return is_over(orchestrator.current(task), owner.scheduled_time)
    except OrchestratorNotFound:
        return True
