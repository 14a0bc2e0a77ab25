"""The view of one workspace, compared between commits: what an attempt asks before it publishes on top of others.

The rule: what a task sees is compared by the lake, object by object, and lakeFS's actions are in no view.  They are
compared apart: a change there refuses nothing, but what was staged before it must not be merged past it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from perago.lake.base import Lake
from perago.protocol.attempt import Attempt
from perago.protocol.paths import ACTIONS
from perago.protocol.publication import (
    Commit,
    Passed,
    TargetBranch,
    ViewChange,
    Workspace,
    own_commits,
)
from perago.protocol.segments import segments
from perago.protocol.signing import base_of, is_in_place
from perago.runtime.attempt.differences import Differences


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
