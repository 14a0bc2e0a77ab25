"""Branch operations shared by attempts, workers and sweeps.

A publication is still valid, and a later worker may send its result, under these conditions:

    a task that does not rebase     its commit is the branch's head
    a task that rebases             its commit is on the branch, and the task's view has not changed since

If the lake does not respond, the publication may or may not be valid, so the error is passed on to the caller.
"""

from __future__ import annotations

import logging

from perago.errors import LakeError, LakeNotFound
from perago.lake.base import ReadableLake, StagingLake
from perago.protocol.names import branch_part, is_slug, parse_internal_branch
from perago.protocol.paths import in_actions
from perago.protocol.publication import MAX_RANGE
from perago.runtime.execution_result import Publication

log = logging.getLogger("perago.branches")


def drop_quietly(lake: StagingLake, repository: str, branch: str) -> None:
    """Drop an internal branch.  A failure is logged but not raised."""
    try:
        lake.drop_branch(repository, branch)
    except LakeError as error:
        log.warning("failed to clean staging workspace %s of %s: %s", branch, repository, error)


def target_of_claim(lake: ReadableLake, repository: str, claim: str, *, unnamed: str | None) -> str | None:
    """Return the branch that a claim is for.

    Returns `unnamed` if the claim names no branch, or None if the branch is gone.
    """
    parsed = parse_internal_branch(claim)
    into = parsed.into if parsed is not None else ""
    if not into:
        return unnamed
    if not is_slug(into):
        return into
    found = (branch.name for branch in lake.branches(repository, "") if branch_part(branch.name) == into)
    return next(found, None)


def invalid_publication_reason(lake: ReadableLake, published: Publication) -> str | None:
    """Return why a publication is no longer valid, or None if it still is."""
    try:
        head = lake.head(published.repository, published.branch).id
    except LakeNotFound as gone:
        return _describe(published, str(gone))
    if head == published.ref:
        return None
    if published.view is None:
        return _describe(published, head)
    commits = lake.log(published.repository, head, MAX_RANGE + 1)
    if all(commit.id != published.ref for commit in commits):
        return f"{_describe(published, head)}, which does not have it among its newest {MAX_RANGE} commits"
    differing = lake.diff_paths(published.repository, published.ref, head, published.view)
    path = next((path for path in differing if not in_actions(path)), None)
    return None if path is None else f"{_describe(published, head)}, where {path!r} has changed since"


def _describe(published: Publication, head: str) -> str:
    return f"it published {published.ref}, but {published.branch!r} is at {head} now"
