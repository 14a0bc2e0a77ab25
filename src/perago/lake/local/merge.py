"""Checks made before the embedded lake moves a branch by merge or relocation, and the tree that results from a merge.

Every function takes the connection of the transaction that then moves the branch, so nothing can change in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import zip_longest

from perago.errors import BranchDirty, HeadMoved, LakeRefused, NothingToCommit, UnpublishedRun
from perago.lake.base import Merge
from perago.lake.local.refs import Branch, StoredCommit, get_commit, is_dirty
from perago.lake.local.tree_diff import differences
from perago.lake.local.trees import Edits, Nodes, find, update
from perago.protocol.metadata import KEY
from perago.protocol.run_steps import MARKER_PATH, REFUSAL, may_merge_marked

LONGEST_WALK = 1024
MOST_SHOWN = 5


def check_unmoved(db: sqlite3.Connection, target: Branch, expected_head: str) -> None:
    """Raise `HeadMoved` if the target is not at the expected head, or `BranchDirty` if it has uncommitted changes."""
    if target.head != expected_head:
        author = get_commit(db, target.repository, target.head).commit.metadata.get(KEY)
        signed = f"signed by {author}" if author else "not signed by any task"
        raise HeadMoved(
            f"branch {target.name!r} is at {target.head} ({signed}), and not at the expected head {expected_head}"
        )
    if is_dirty(db, target):
        raise BranchDirty(
            f"branch {target.name!r} has uncommitted changes (dirty branch): commit or drop them"
        )


def tree_to_merge(db: sqlite3.Connection, nodes: Nodes, source: Branch, target: Branch, merge: Merge) -> str:
    """Return the target's tree with the changes that the source has made since their common ancestor.

    This is a three-way merge, as in lakeFS.  At a path that the source did not change, the target's object is kept.  A
    path that both changed differently is a conflict.  Raises `HeadMoved` if there is a conflict, `UnpublishedRun` if the
    source has the marker of a run, and `LakeRefused` if the source changed nothing or there is no common ancestor.
    """
    head = get_commit(db, source.repository, source.head)
    if not may_merge_marked(target.name) and find(nodes, head.tree, MARKER_PATH) is not None:
        raise UnpublishedRun(f"merge {source.name!r} into branch {target.name!r}: {REFUSAL}")
    onto = get_commit(db, target.repository, target.head)
    # A staging branch grows from the target's own first parents.  Other branches may have been merged before.
    ancestor = _common_ancestor if merge.squash else _best_ancestor
    base = ancestor(db, source.repository, head, onto)
    if base is None:
        within = f"among the newest {LONGEST_WALK}: stage on that head" if merge.squash else "at all"
        raise LakeRefused(
            f"branch {source.name!r} at {source.head} and branch {target.name!r} at {target.head} have no commit in "
            f"common {within}"
        )
    # As in lakeFS, the target may already have the source's changes.  Only a source without changes is refused.
    if head.tree == base.tree and not merge.allow_empty:
        raise NothingToCommit(f"merge: no changes from branch {source.name!r} to branch {target.name!r}")
    edits, both = _three_way(nodes, base, head, onto)
    if both:
        shown = ", ".join(repr(path) for path in both[:MOST_SHOWN])
        more = f" and {len(both) - MOST_SHOWN} more" if len(both) > MOST_SHOWN else ""
        raise HeadMoved(
            f"branch {source.name!r} conflicts with branch {target.name!r} at {target.head}: both have changed "
            f"{shown}{more} since {base.commit.id}"
        )
    return update(nodes, onto.tree, edits)


def conflicting_paths(
    db: sqlite3.Connection, nodes: Nodes, repository: int, source: StoredCommit, target: StoredCommit
) -> list[str]:
    """Return the paths that two commits have changed differently since their best common ancestor."""
    base = _best_ancestor(db, repository, source, target)
    return _three_way(nodes, base, source, target)[1] if base is not None else []


def _three_way(
    nodes: Nodes, base: StoredCommit, head: StoredCommit, onto: StoredCommit
) -> tuple[Edits, list[str]]:
    """Return the changes from `base` to `head`, and those of their paths that `onto` has changed in another way."""
    edits: Edits = {path: now for path, _, now in differences(nodes, base.tree, head.tree)}
    if base.tree == onto.tree:
        return edits, []
    theirs = {path: now for path, _, now in differences(nodes, base.tree, onto.tree)}
    return edits, sorted(path for path in edits.keys() & theirs.keys() if edits[path] != theirs[path])


def _best_ancestor(
    db: sqlite3.Connection, repository: int, one: StoredCommit, two: StoredCommit
) -> StoredCommit | None:
    """Return the newest common ancestor that is not an ancestor of another one, or None.  Follows all parents."""
    ours, theirs = (_all_ancestors(db, repository, step) for step in (one, two))
    common = ours.keys() & theirs.keys()
    best = common - {parent for commit in common for parent in ours[commit].commit.parents}
    return max(
        (ours[commit] for commit in best),
        key=lambda step: (step.commit.created, step.commit.id),
        default=None,
    )


def _all_ancestors(db: sqlite3.Connection, repository: int, step: StoredCommit) -> dict[str, StoredCommit]:
    """Return a commit and all of its ancestors, by id."""
    found, todo = {step.commit.id: step}, [step]
    while todo:
        for parent in todo.pop().commit.parents:
            if parent not in found:
                found[parent] = get_commit(db, repository, parent)
                todo.append(found[parent])
    return found


def _common_ancestor(
    db: sqlite3.Connection, repository: int, one: StoredCommit, two: StoredCommit
) -> StoredCommit | None:
    """Return the newest common first-parent ancestor, or None.

    For a staging branch, it is the commit at which the branch was created.  Both histories are walked in lockstep, so
    the cost is proportional to the distance to the ancestor, not to the length of the history.
    """
    seen: set[str] = set()
    for steps in zip_longest(_ancestors(db, repository, one), _ancestors(db, repository, two)):
        for step in steps:
            if step is None:
                continue
            if step.commit.id in seen:
                return step
            seen.add(step.commit.id)
    return None


def _ancestors(db: sqlite3.Connection, repository: int, step: StoredCommit) -> Iterator[StoredCommit]:
    yield step
    for _ in range(LONGEST_WALK):
        parent = step.commit.first_parent
        if parent is None:
            return
        step = get_commit(db, repository, parent)
        yield step
