"""Whether what an execution has published still stands, so that its result may be sent by a later worker.

    a task that refuses     its commit is the branch's head
    a task that rebases     its commit is on the branch, and what the task sees has not changed since

The rule: a lake that gives no answer says nothing, and its error is the caller's.
"""

from __future__ import annotations

from perago.errors import LakeNotFound
from perago.lake.base import Lake
from perago.protocol.paths import in_actions
from perago.protocol.publication import MAX_RANGE
from perago.runtime.ending import Publication


def why_not_published_any_more(lake: Lake, published: Publication) -> str | None:
    """Why the result speaks of something that is not there any more, or None."""
    try:
        head = lake.head(published.repository, published.branch).id
    except LakeNotFound as gone:
        return _told(published, str(gone))
    if head == published.ref:
        return None
    if published.view is None:
        return _told(published, head)
    commits = lake.log(published.repository, head, MAX_RANGE + 1)
    if all(commit.id != published.ref for commit in commits):
        return f"{_told(published, head)}, and has it not among its newest {MAX_RANGE} commits"
    differing = lake.differing(published.repository, published.ref, head, published.view)
    path = next((path for path in differing if not in_actions(path)), None)
    return None if path is None else f"{_told(published, head)}, where {path!r} has changed since"


def _told(published: Publication, head: str) -> str:
    return f"it published {published.ref}, but {published.branch!r} is at {head} now"
