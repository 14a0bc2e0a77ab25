"""Own commits aside: between which commits the view must be the same for an attempt to publish on top of others.

    A ── o ── o ── O1 ── o ── O2 ── o ── H          O: own commits, o: others'
    └─────────┘     └────┘     └─────────┘          the view is the same at both ends of each segment

One comparison of H with A is not enough once there are own commits: what somebody took back of ours would be published over.
Each commit of others by itself is too strict: a change that was taken back would refuse the retry for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perago.protocol.attempt import Attempt
from perago.protocol.publication import Commit, own_commits

Segment = tuple[str, str]
"""Two commits, the older one first."""


def segments(attempt: Attempt, input_ref: str, advance: Sequence[Commit]) -> Sequence[Segment]:
    """The pairs of commits whose views must be equal, oldest first; `advance` goes from the head down to A."""
    return cut(input_ref, advance, own_commits(attempt, advance))


def cut(since: str, advance: Sequence[Commit], aside: Sequence[Commit]) -> Sequence[Segment]:
    """The range above `since` without the commits that are `aside`, oldest first; both go from the newest down."""
    found: list[Segment] = []
    for commit in reversed(aside):
        found.append((since, commit.parents[0]))
        since = commit.id
    found.append((since, advance[0].id))
    return [(older, newer) for older, newer in found if older != newer]


def within(segment: Segment, advance: Sequence[Commit]) -> Sequence[Commit]:
    """The commits of a segment, oldest first, its older end left out."""
    ids = [commit.id for commit in advance]
    older, newer = segment
    ends = ids.index(older) if older in ids else len(ids)
    return advance[ids.index(newer) : ends][::-1]


def still_fits(attempt: Attempt, advance: Sequence[Commit], bases: Collection[str]) -> str | None:
    """The newest of the commits that the result was staged on already, if no own commit came after it; else None.

    What is staged there can be merged as it is: the view has not changed since.
    """
    for commit in advance:
        if commit.id in bases:
            return commit.id
        if own_commits(attempt, [commit]):
            return None
    return None
