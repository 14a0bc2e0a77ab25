"""Taking away what a dead attempt could still publish with: its stagings, a request in flight, its claim.

    stagings dropped → barrier → claims dropped

Dropping a staging does not stop a publish request that has resolved it already; the barrier does.  The claim goes last,
so a claim that is found is a barrier that is owed: whoever sent none, or died before it, left the claim behind.
"""

from __future__ import annotations

import logging

from perago.lake.base import Lake
from perago.protocol.attempt import Attempt
from perago.protocol.names import revoke_prefix, revoked_by
from perago.runtime.own_branches import target_of_claim

log = logging.getLogger("perago.revoking")


def revoke(lake: Lake, repository: str, attempt: Attempt, *, target: str, timeout: float) -> None:
    """Make sure that no attempt of this step that was scheduled earlier can publish any more; `LakeError` if not sure."""
    found = lake.branches(repository, revoke_prefix(attempt))
    revoked = revoked_by(attempt, [branch.name for branch in found])
    for staging in revoked.stagings:
        log.info("revoked %s of a dead attempt", staging)
        lake.drop_branch(repository, staging)
    owed = {target_of_claim(lake, repository, claim, unnamed=target) for claim in revoked.claims}
    for branch in sorted(filter(None, owed)):
        lake.barrier(repository, branch, timeout)
    for claim in revoked.claims:
        log.info("revoked %s of a dead attempt", claim)
        lake.drop_branch(repository, claim)
