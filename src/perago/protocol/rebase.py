"""Rebase: between which commits the view must be the same for an attempt to publish on top of others' commits.

    A ── o ── o ── O1 ── o ── O2 ── o ── H          O: own commits, o: others'
    └─────────┘     └────┘     └─────────┘          the view is the same at both ends of each segment

One comparison of H with A is not enough once there are own commits: if somebody reverted one of ours, we would publish over
the revert.  Checking each commit of others separately is too strict: a change that was reverted would refuse the retry for
ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit, own_commits

Segment = tuple[str, str]
"""Two commits, the older one first."""


def segments(attempt: Attempt, input_ref: str, advance: Sequence[Commit]) -> Sequence[Segment]:
    """Return the pairs of commits whose views must be equal, oldest first; `advance` goes from the head down to A."""
    return cut(input_ref, advance, own_commits(attempt, advance))


def cut(since: str, advance: Sequence[Commit], aside: Sequence[Commit]) -> Sequence[Segment]:
    """Return the range above `since` without the commits `aside`, as segments, oldest first; inputs are newest first."""
    found: list[Segment] = []
    for commit in reversed(aside):
        found.append((since, commit.parents[0]))
        since = commit.id
    found.append((since, advance[0].id))
    return [(older, newer) for older, newer in found if older != newer]


def within(segment: Segment, advance: Sequence[Commit]) -> Sequence[Commit]:
    """Return the commits of a segment, oldest first, without its older end."""
    ids = [commit.id for commit in advance]
    older, newer = segment
    ends = ids.index(older) if older in ids else len(ids)
    return advance[ids.index(newer) : ends][::-1]


def still_fits(attempt: Attempt, advance: Sequence[Commit], bases: Collection[str]) -> str | None:
    """Return the newest commit that the result is already staged on, if no own commit came after it; else None.

    That staging can be merged unchanged: the view has not changed since.
    """
    for commit in advance:
        if commit.id in bases:
            return commit.id
        if own_commits(attempt, [commit]):
            return None
    return None
