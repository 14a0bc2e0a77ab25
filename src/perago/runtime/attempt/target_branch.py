"""The target branch as a decision needs it: its head, and no more of its history than that takes.

On the usual way, the head is A, this is one call.

What differs between commits of a branch below some paths, and which commit made the difference.

The rule: the lake compares, object by object; lakeFS's actions are nobody's data and never count.

The view of one workspace, compared between commits: what an attempt asks before it publishes on top of others.

The rule: what a task sees is compared by the lake, object by object, and lakeFS's actions are in no view.  They are
compared apart: a change there refuses nothing, but what was staged before it must not be merged past it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from perago.lake.base import Lake
from perago.protocol.attempt import Attempt
from perago.protocol.paths import ACTIONS, in_actions
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.publication import (
    MAX_RANGE,
    Commit,
    Passed,
    TargetBranch,
    ViewChange,
    Workspace,
    own_commits,
    read_advance,
)
from perago.protocol.rebase import Segment, segments, within
from perago.protocol.signing import base_of, is_in_place


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


@dataclass(frozen=True, slots=True)
class Differences:
    """Compares commits of one repository."""

    lake: Lake
    repository: str

    def first(self, segment: Segment, roots: tuple[str, ...]) -> str | None:
        """The first path below the roots that differs between both ends."""
        found = self.lake.differing(self.repository, *segment, roots)
        return next((path for path in found if not in_actions(path)), None)

    def change(
        self, segments: Iterable[Segment], advance: Sequence[Commit], roots: tuple[str, ...]
    ) -> ViewChange | None:
        """The first path that differs between the ends of a segment, and the commit that changed it."""
        for segment in segments:
            path = self.first(segment, roots)
            if path is not None:
                return ViewChange(path, self._maker(segment, advance, path))
        return None

    def _maker(self, segment: Segment, advance: Sequence[Commit], path: str) -> Commit:
        """A commit of the segment that changed a path, away from what it was at the older end."""
        commits = within(segment, advance)
        changed = bisect_left(
            commits, True, key=lambda commit: self.first((segment[0], commit.id), (path,)) is not None
        )
        return commits[min(changed, len(commits) - 1)]


@dataclass(frozen=True, slots=True)
class Views:
    """Compares what a task sees of its workspace between commits."""

    lake: Lake
    workspace: Workspace

    def passed(self, attempt: Attempt, target: TargetBranch) -> TargetBranch:
        """The same branch with what others' commits since A mean for this attempt, where there are any."""
        others = len(target.advance) > len(own_commits(attempt, target.advance))
        if target.reached != "input" or not others:
            return target
        change = self._change(attempt, target)
        new_actions = change is None and self.new_actions(self.workspace.ref, target.head.id)
        return replace(target, passed=Passed(change, new_actions))

    def same(self, left: str, right: str) -> bool:
        """Whether the task would see the same at both commits."""
        return left == right or self._differences.first((left, right), self.workspace.view.roots) is None

    def new_actions(self, left: str, right: str) -> bool:
        """Whether lakeFS would run other actions for what is staged on `left` than for what is staged on `right`."""
        found = self.lake.differing(self.workspace.repository, left, right, (ACTIONS,))
        return next(iter(found), None) is not None

    def stands(self, commit: Commit) -> bool:
        """Whether a publication is the result: it landed where it was decided for, or where the view was the same.

        Own commits are not aside here: what landed on one mixes two results.
        """
        if is_in_place(commit):
            return True
        parent = commit.first_parent
        return parent is not None and self.same(base_of(commit), parent)

    def _change(self, attempt: Attempt, target: TargetBranch) -> ViewChange | None:
        roots = self.workspace.view.roots
        return self._differences.change(
            segments(attempt, self.workspace.ref, target.advance), target.advance, roots
        )

    @property
    def _differences(self) -> Differences:
        return Differences(self.lake, self.workspace.repository)
