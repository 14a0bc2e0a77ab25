"""Rebase: finds the commits between which the view must not change if an attempt publishes on top of others' commits.

    A ── o ── o ── O1 ── o ── O2 ── o ── H          O: this step's own commits, o: others' commits
    └─────────┘     └────┘     └─────────┘          the view must be the same at both ends of each segment

Comparing only H with A is not enough if there are own commits: if somebody reverted one of them, the attempt would
publish over the revert.  Checking each of the others' commits separately is too strict: a change that was later
reverted would cause every retry to be refused.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit, own_commits

Segment = tuple[str, str]
"""The ids of the commits at both ends of a segment, the older one first."""


def segments(attempt: Attempt, input_ref: str, advance: Sequence[Commit]) -> Sequence[Segment]:
    """Return the pairs of commits whose views must be equal, oldest first.

    `advance` contains the commits from the head down to the input commit, which is excluded.
    """
    return split_into_segments(input_ref, advance, own_commits(attempt, advance))


def split_into_segments(since: str, advance: Sequence[Commit], aside: Sequence[Commit]) -> Sequence[Segment]:
    """Split the commits above `since` into segments, leaving out the commits in `aside`.

    `advance` and `aside` are ordered newest first, and the returned segments oldest first.
    """
    found: list[Segment] = []
    for commit in reversed(aside):
        found.append((since, commit.parents[0]))
        since = commit.id
    found.append((since, advance[0].id))
    return [(older, newer) for older, newer in found if older != newer]


def commits_in_segment(segment: Segment, advance: Sequence[Commit]) -> Sequence[Commit]:
    """Return the commits in a segment, oldest first, excluding its older end."""
    ids = [commit.id for commit in advance]
    older, newer = segment
    ends = ids.index(older) if older in ids else len(ids)
    return advance[ids.index(newer) : ends][::-1]


def reusable_staging_base(attempt: Attempt, advance: Sequence[Commit], bases: Collection[str]) -> str | None:
    """Return the newest commit on which the result is already staged, or None if there is none.

    Also returns None if one of this step's own commits is newer.  Otherwise the branch staged on that commit can be
    merged as is, because the view has not changed since then.
    """
    for commit in advance:
        if commit.id in bases:
            return commit.id
        if own_commits(attempt, [commit]):
            return None
    return None
