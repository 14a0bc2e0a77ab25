"""Joins several workspaces on one branch: finds the last one, and checks that the work in the others is still intact.

    A ── P1 ── o ── P2 ── P3        P: the joined workspaces, o: others' commits; the attempt works from P3

Every workspace but the last must be a first-parent ancestor of the last, at most 1024 commits back.  Everything that
its step may write must be the same at P3 as when the step published it.  Commits by steps of the same workflow are
exempt if their input was that publication or a later commit: those steps were given its work and changed it knowingly.
A commit that is not a publication has nothing to protect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from perago.protocol.metadata import INPUT_REF, KEY, PHASE, PREFIX, WRITES
from perago.protocol.publication import MAX_RANGE, Commit
from perago.protocol.rebase import Segment, split_into_segments
from perago.protocol.refusal import made_by


@dataclass(frozen=True, slots=True)
class AncestorSearch:
    """The result of searching for ancestors of a commit.

    `above` maps the id of each ancestor that was found to the commits above it, newest first.
    """

    last: str
    above: Mapping[str, Sequence[Commit]]
    missing: tuple[str, ...] = ()
    """Ids of commits that are not first-parent ancestors of `last`, or are too far back."""


def candidates(commits: Iterable[Commit]) -> Sequence[Commit]:
    """Return the distinct commits, ordered by how likely they are to be the last one on the branch.

    This is only a heuristic: commits that are not the parent of another come first, then newer commits.
    """
    found = {commit.id: commit for commit in commits}
    parents = {commit.first_parent for commit in found.values()}
    return sorted(found.values(), key=lambda commit: (commit.id in parents, -commit.created))


def find_ancestors(last: str, others: Iterable[str], history: Iterable[Commit]) -> AncestorSearch:
    """Search for commits below `last`.  `history` starts at `last`, newest first, and is read only as far as needed."""
    wanted = {other for other in others if other != last}
    above: dict[str, Sequence[Commit]] = {}
    passed: list[Commit] = []
    for commit in islice(history, MAX_RANGE + 1):
        if commit.id in wanted:
            above[commit.id] = tuple(passed)
        if len(above) == len(wanted):
            break
        passed.append(commit)
    return AncestorSearch(last, above, tuple(sorted(wanted - above.keys())))


def written_by(commit: Commit) -> tuple[str, ...]:
    """Return the object paths that could be written by the step that published a commit.

    Returns an empty tuple if the commit is not a publication.
    """
    if PHASE not in commit.metadata or KEY not in commit.metadata:
        return ()
    try:
        roots = json.loads(commit.metadata[WRITES])
    except (KeyError, ValueError):
        # Publications made by older versions record only their prefix.
        prefix = commit.metadata.get(PREFIX, "/").strip("/")
        return (f"{prefix}/" if prefix else "",)
    return tuple(map(str, roots)) if isinstance(roots, list) else (str(roots),)


def segments_to_compare(workflow_id: str, ref: str, above: Sequence[Commit]) -> Sequence[Segment]:
    """Return the pairs of commits between which a publication's writable paths must not differ, oldest first."""
    started = {ref, *(commit.id for commit in above)}
    aside = [
        commit
        for commit in above
        if commit.metadata.get(KEY, "").startswith(f"{workflow_id}/")
        and commit.metadata.get(INPUT_REF) in started
    ]
    return split_into_segments(ref, above, aside)


def not_joinable_reason(odd: str, last: str, where: str) -> str:
    """Return the reason why two workspaces cannot be joined: no single commit contains both.

    `odd` and `last` are the names of the two workspaces in the message.
    """
    return (
        f"{odd} is not among the first-parent ancestors of {last}, at most {MAX_RANGE} back on {where}: no commit holds "
        "both, so they cannot be joined. Join outputs of steps that published to this branch one after the other, and start "
        "a new workflow from its head"
    )


def changed_since_reason(published: str, last: str, path: str, by: Commit) -> str:
    """Return the reason why a publication is no longer intact in the last workspace."""
    return (
        f"{published} cannot be joined with {last}: {by.id} ({made_by(by)}) changed {path!r} in between, which is the first "
        "one's to write. A step that changes another step's work must start from its output. Start a new workflow from the "
        "head of the branch"
    )
