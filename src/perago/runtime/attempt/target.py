"""The target branch as a decision needs it: its head, and no more of its history than that takes.

On the usual way, the head is A, this is one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from perago.lake.base import Lake
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.publication import (
    MAX_RANGE,
    Commit,
    TargetBranch,
    Workspace,
    read_advance,
)


def read_target(lake: Lake, workspace: Workspace, policy: PolicyName) -> TargetBranch:
    """The branch now, with what would stand in a relocation's way where one may follow."""
    found = read_history(lake, workspace)
    if not POLICIES[policy].asks_what_a_move_passes_by or found.head.first_parent != workspace.ref:
        return found
    dirty = lake.uncommitted(workspace.repository, workspace.branch)
    return TargetBranch(found.head, found.advance, dirty=dirty, gates=_gates(lake, workspace, found.head))


def read_history(lake: Lake, workspace: Workspace) -> TargetBranch:
    """The head, and the commits between it and A."""
    head = lake.head(workspace.repository, workspace.branch)
    if head.id == workspace.ref:
        return TargetBranch(head)
    if head.first_parent == workspace.ref:
        return TargetBranch(head, (head,))
    return read_advance(workspace.ref, lake.log(workspace.repository, head.id, MAX_RANGE + 1))


def _gates(lake: Lake, workspace: Workspace, head: Commit) -> Sequence[str]:
    """What a relocation would pass by: C has A's actions, and the head may have brought some."""
    found = (lake.gates(workspace.repository, ref, workspace.branch) for ref in (workspace.ref, head.id))
    return tuple(dict.fromkeys(chain.from_iterable(found)))
