"""What must hold before the embedded lake moves a branch by merge or relocation.

Every function takes the connection of the transaction that then moves it, so nothing can change in between.
"""

from __future__ import annotations

import sqlite3

from perago.errors import BranchDirty, HeadMoved, LakeRefused
from perago.lake.local.refs import Branch, get_commit
from perago.lake.local.staging import is_dirty
from perago.protocol.metadata import KEY

LONGEST_WALK = 1024


def check_unmoved(db: sqlite3.Connection, target: Branch, expected_head: str) -> None:
    """The target is at the expected head and has nothing uncommitted; `HeadMoved`, `BranchDirty`."""
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


def tree_to_merge(db: sqlite3.Connection, source: Branch, target: Branch) -> str:
    """The source's committed tree, if it is the target's head with changes made to it; `LakeRefused`."""
    head = get_commit(db, source.repository, source.head)
    base = get_commit(db, target.repository, target.head)
    if head.tree == base.tree:
        raise LakeRefused(f"merge: no changes from branch {source.name!r} to branch {target.name!r}")
    step = head.commit
    for _ in range(LONGEST_WALK):
        if step.id == target.head:
            return head.tree
        if not step.parents:
            break
        step = get_commit(db, source.repository, step.parents[0]).commit
    raise LakeRefused(
        f"branch {source.name!r} at {source.head} does not descend from {target.head}, the head of branch "
        f"{target.name!r}, so its files cannot replace the ones there: stage on that head"
    )
