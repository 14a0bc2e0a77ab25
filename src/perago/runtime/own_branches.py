"""What attempts, workers and sweeps do alike with branches of Perago's own."""

from __future__ import annotations

import logging

from perago.errors import LakeError
from perago.lake.base import Lake
from perago.protocol.names import branch_part, is_slug, parse_internal_branch

log = logging.getLogger("perago.branches")


def drop_quietly(lake: Lake, repository: str, branch: str) -> None:
    """Drop a branch of our own; a failure is logged and changes nothing."""
    try:
        lake.drop_branch(repository, branch)
    except LakeError as error:
        log.warning("failed to clean staging workspace %s of %s: %s", branch, repository, error)


def target_of_claim(lake: Lake, repository: str, claim: str, *, unnamed: str | None) -> str | None:
    """The branch that a claim is for; `unnamed` where it names none, None where that branch is gone."""
    parsed = parse_internal_branch(claim)
    into = parsed.into if parsed is not None else ""
    if not into:
        return unnamed
    if not is_slug(into):
        return into
    found = (branch.name for branch in lake.branches(repository, "") if branch_part(branch.name) == into)
    return next(found, None)
