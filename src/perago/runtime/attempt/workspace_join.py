"""Chooses an attempt's input commit.

For a single workspace, this is the workspace's commit.  If several workspaces are joined, it is whichever of their
commits comes last on the branch.

The choice depends only on the commits in the input, so every retry starts from the same one.  Workspaces that cannot be
joined are an input error, which no retry can fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perago.errors import LakeForbidden, LakeNotFound, TaskInputError
from perago.lake.base import Commit, ReadableLake
from perago.protocol.attempt import Attempt
from perago.protocol.publication import MAX_RANGE, TargetBranch, Workspace
from perago.protocol.view import View
from perago.protocol.workspace_join import (
    AncestorSearch,
    candidates,
    changed_since_reason,
    find_ancestors,
    not_joinable_reason,
    segments_to_compare,
    written_by,
)
from perago.runtime.attempt.contract import commit_of, workspace_label
from perago.runtime.attempt.target_branch import Differences

_FULL_ID = re.compile(r"[0-9a-f]{64}")
"""A full commit id.  Any other ref may be a name or an abbreviated id."""


@dataclass(frozen=True, slots=True)
class Start:
    """The workspace that an attempt starts from.

    `given` is the same workspace as it appears in the input.  The output uses the same field names.
    """

    workspace: Workspace
    given: Mapping[str, str]
    at_head: TargetBranch | None = None
    """The target branch, if it was read and the attempt works from its head."""


def start_of(
    lake: ReadableLake,
    attempt: Attempt,
    given: Sequence[Mapping[str, str]],
    view: View,
    *,
    read_branch_first: bool = False,
) -> Start:
    """Resolve each of the input's refs once, to a full commit id, and choose the commit to start from.

    Raises `TaskInputError` if the workspaces cannot be joined.  With `read_branch_first`, a ref that is the branch's
    head or the head's parent need not be looked up.
    """
    if (
        read_branch_first
        and len(given) == 1
        and (start := _start_by_branch(lake, given[0], view)) is not None
    ):
        return start
    commits = [commit_of(lake, one, workspace_label(given, number)) for number, one in enumerate(given)]
    chosen = commits[0].id
    if any(commit.id != chosen for commit in commits):
        chosen = _Join(lake, attempt, given, commits).choose_last()
    sent = given[[commit.id for commit in commits].index(chosen)]
    return Start(_workspace(sent, chosen, view), sent)


def _start_by_branch(lake: ReadableLake, given: Mapping[str, str], view: View) -> Start | None:
    """Return the workspace to start from, if the ref is the branch's head or the head's parent.

    Returns None if it is neither, or if the branch cannot be read.
    """
    ref = given["ref"]
    if not _FULL_ID.fullmatch(ref):
        return None
    try:
        head = lake.head(given["repository"], given["branch"])
    except (LakeNotFound, LakeForbidden):
        # The ref may still be readable; the caller looks it up.
        return None
    if ref not in (head.id, head.first_parent):
        return None
    return Start(_workspace(given, ref, view), given, TargetBranch(head) if head.id == ref else None)


def _workspace(given: Mapping[str, str], ref: str, view: View) -> Workspace:
    declared = view if view.declared else None
    return Workspace(given["repository"], given["branch"], ref, view.prefix, declared)


@dataclass(frozen=True, slots=True)
class _Join:
    lake: ReadableLake
    attempt: Attempt
    given: Sequence[Mapping[str, str]]
    commits: Sequence[Commit]

    def choose_last(self) -> str:
        """Return the commit whose history contains all the others.

        Raises `TaskInputError` if there is none, or if something that one of the others wrote has changed since.
        """
        found = self._search_ancestors()
        if found.missing:
            where = f"branch {self.given[0]['branch']!r} of {self.given[0]['repository']!r}"
            raise TaskInputError(
                not_joinable_reason(self._label(found.missing[0]), self._label(found.last), where)
            )
        for commit in candidates(self.commits):
            if commit.id != found.last:
                self._expect_unchanged(commit, found)
        return found.last

    def _search_ancestors(self) -> AncestorSearch:
        """Search for the commit whose history contains all the others.

        Returns the search from that commit.  If there is no such commit, returns the search that missed the fewest
        others.
        """
        ids = {commit.id for commit in self.commits}
        searched: list[AncestorSearch] = []
        for commit in candidates(self.commits):
            if any(commit.id in before.above for before in searched):
                continue
            history = self.lake.log(self._repository, commit.id, MAX_RANGE + 1)
            searched.append(find_ancestors(commit.id, ids, history))
            if not searched[-1].missing:
                break
        return min(searched, key=lambda found: len(found.missing))

    def _expect_unchanged(self, commit: Commit, found: AncestorSearch) -> None:
        roots = written_by(commit)
        if not roots:
            return
        above = found.above[commit.id]
        compared = segments_to_compare(self.attempt.workflow_instance_id, commit.id, above)
        change = Differences(self.lake, self._repository).change(compared, above, roots)
        if change is not None:
            published, last = self._label(commit.id), self._label(found.last)
            raise TaskInputError(changed_since_reason(published, last, change.path, change.commit))

    @property
    def _repository(self) -> str:
        return self.given[0]["repository"]

    def _label(self, commit: str) -> str:
        number = next(number for number, one in enumerate(self.commits) if one.id == commit)
        return f"{workspace_label(self.given, number)}.ref {commit}"
