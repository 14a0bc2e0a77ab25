"""Reads the target branch for a decision, and compares the task's view between commits on that branch.

Only as much history is read as the decision needs.  In the usual case, where the head is the input commit, that takes
one call.

The lake does the comparison, object by object.  lakeFS's actions are not data and belong to no view, so they are
compared separately.  Changed actions do not cause a publish to be refused, but a result staged before the change must
be staged again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from perago.lake.base import ReadableLake
from perago.protocol.attempt import Attempt
from perago.protocol.paths import ACTIONS, in_actions
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.publication import (
    MAX_RANGE,
    AdvanceEffect,
    Commit,
    TargetBranch,
    ViewChange,
    Workspace,
    own_commits,
    read_advance,
)
from perago.protocol.rebase import Segment, commits_in_segment, segments
from perago.protocol.signing import base_of, is_in_place


def read_target(lake: ReadableLake, workspace: Workspace, policy: PolicyName) -> TargetBranch:
    """Return the current state of the branch.

    If a relocation may follow, this also reads everything that could prevent it.
    """
    found = read_history(lake, workspace)
    if not POLICIES[policy].checks_before_relocating or found.head.first_parent != workspace.ref:
        return found
    dirty = lake.has_uncommitted_changes(workspace.repository, workspace.branch)
    return TargetBranch(found.head, found.advance, dirty=dirty, gates=_gates(lake, workspace, found.head))


def read_history(lake: ReadableLake, workspace: Workspace) -> TargetBranch:
    """Return the head and the commits between it and the input commit."""
    head = lake.head(workspace.repository, workspace.branch)
    if head.id == workspace.ref:
        return TargetBranch(head)
    if head.first_parent == workspace.ref:
        return TargetBranch(head, (head,))
    return read_advance(workspace.ref, lake.log(workspace.repository, head.id, MAX_RANGE + 1))


def _gates(lake: ReadableLake, workspace: Workspace, head: Commit) -> Sequence[str]:
    """Return the users' pre-merge actions that a relocation would bypass.

    The staged commit has the actions of the input commit, and the head may have added others.
    """
    found = (lake.gates(workspace.repository, ref, workspace.branch) for ref in (workspace.ref, head.id))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


@dataclass(frozen=True, slots=True)
class Differences:
    """Compares the files in different commits of one repository."""

    lake: ReadableLake
    repository: str

    def first(self, segment: Segment, roots: tuple[str, ...]) -> str | None:
        """Return the first path below the roots that differs between the two commits of a segment, or None."""
        found = self.lake.diff_paths(self.repository, *segment, roots)
        return next((path for path in found if not in_actions(path)), None)

    def change(
        self, segments: Iterable[Segment], advance: Sequence[Commit], roots: tuple[str, ...]
    ) -> ViewChange | None:
        """Return the first path that differs between a segment's commits, and the commit that changed it, or None."""
        for segment in segments:
            path = self.first(segment, roots)
            if path is not None:
                return ViewChange(path, self._maker(segment, advance, path))
        return None

    def _maker(self, segment: Segment, advance: Sequence[Commit], path: str) -> Commit:
        """Find a commit in the segment that changed the path from its state at the segment's older end."""
        commits = commits_in_segment(segment, advance)
        changed = bisect_left(
            commits, True, key=lambda commit: self.first((segment[0], commit.id), (path,)) is not None
        )
        return commits[min(changed, len(commits) - 1)]


@dataclass(frozen=True, slots=True)
class Views:
    """Compares a task's view of its workspace between commits."""

    lake: ReadableLake
    workspace: Workspace

    def with_advance_effect(self, attempt: Attempt, target: TargetBranch) -> TargetBranch:
        """Return the branch with `advance_effect` set: the effect of others' commits since the input commit."""
        others = len(target.advance) > len(own_commits(attempt, target.advance))
        if target.reached != "input" or not others:
            return target
        change = self._change(attempt, target)
        new_actions = change is None and self.new_actions(self.workspace.ref, target.head.id)
        return replace(target, advance_effect=AdvanceEffect(change, new_actions))

    def same(self, left: str, right: str) -> bool:
        """Return whether the task's view is the same at both commits."""
        return left == right or self._differences.first((left, right), self.workspace.view.roots) is None

    def new_actions(self, left: str, right: str) -> bool:
        """Return whether a commit staged on `left` has different lakeFS actions from one staged on `right`."""
        found = self.lake.diff_paths(self.workspace.repository, left, right, (ACTIONS,))
        return next(iter(found), None) is not None

    def is_valid_publication(self, commit: Commit) -> bool:
        """Return whether a publication is valid where it landed.

        It is valid on its expected head, and on a parent where the view is the same as at the commit that it was staged
        on.  The task's own commits are no exception: a publication that landed on one of them mixes two results.
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
