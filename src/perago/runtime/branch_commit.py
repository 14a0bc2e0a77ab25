"""Publishes one commit to a branch on behalf of a command: `perago put`, `merge` or `restore`.

As with every publication, the commit is made on a hidden branch, and reaches the target branch by one merge onto the head
that it was made for: the lake compares the head if the branch is fenced.  A merge without an answer is settled by
reading the branch.  The commits are signed with the command's own key, so that no retry of a task takes one of them for
its own abandoned publication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from perago.errors import BranchDirty, LakeError, LakeRefused, LakeUnavailable, LandedElsewhere
from perago.lake.base import Merge, PublishingLake
from perago.protocol.metadata import FENCE, KEY, STAGING_BRANCH, STAGING_COMMIT
from perago.protocol.publication import MAX_RANGE, StagedWorkspace
from perago.runtime.internal_branches import drop_quietly
from perago.settings import FenceMode

MERGE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CommandKind:
    """A command that publishes commits: its key, and the words for messages about it."""

    key: str
    """The logical task key of its commits.  No step of a workflow has it."""
    noun: str
    done: str


PUT = CommandKind("perago-put", "put", "put")
MERGE = CommandKind("perago-merge", "merge", "merged")
RESTORE = CommandKind("perago-restore", "restore", "restored")
UNMARK = CommandKind("perago-unmark", "removal of the marker", "removed")


@dataclass(frozen=True, slots=True)
class BranchCommit:
    """Stages and publishes one command's commit.  `new_branch` yields unique names for hidden branches."""

    lake: PublishingLake
    kind: CommandKind
    repository: str
    branch: str
    fence: FenceMode
    new_branch: Iterator[str]

    @contextmanager
    def staging(self, head: str) -> Iterator[str]:
        """Create a hidden branch at a commit.  It is dropped at the end of the block."""
        name = next(self.new_branch)
        self.lake.create_branch(self.repository, name, head)
        try:
            yield name
        finally:
            drop_quietly(self.lake, self.repository, name)

    def signed(self, side: str) -> dict[str, str]:
        """Return the metadata of a commit on the hidden branch `side`."""
        return {KEY: self.kind.key, STAGING_BRANCH: side}

    def stage(self, side: str, message: str) -> StagedWorkspace:
        """Commit what was written to `side`.  Raises `NothingToCommit` if that changes nothing."""
        commit = self.lake.commit(self.repository, side, message, self.signed(side))
        return StagedWorkspace(self.repository, side, commit)

    def merge_into_staging(self, source: str, side: str, head: str, message: str) -> None:
        """Merge a branch into the hidden branch `side`, which is at `head`.  Raises `HeadMoved` if they conflict."""
        # Nobody else writes to the hidden branch, so it needs no fence.
        merge = Merge(source, side, head, message, self.signed(side), MERGE_SECONDS, "soft", squash=False)
        self.lake.merge(self.repository, merge)

    def publish(
        self,
        staged: StagedWorkspace,
        expected_head: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        squash: bool = True,
    ) -> str:
        """Merge the staged commit onto the expected head, and return the new commit.

        Without `squash`, the staged commit becomes its second parent, and it may change nothing.  Raises
        `HeadMoved` if the branch has another head, or has changed the same files.
        """
        level = "soft" if self.fence == "soft" else self.lake.fence_level(self.repository, staged.commit)
        if self.fence == "hard" and level == "soft":
            why = self.lake.fence_gap(self.repository, staged.commit, self.branch)
            raise LakeRefused(f"PERAGO_FENCE=hard, but {staged.commit} of {self.repository!r} {why}")
        signed = {
            **self.signed(staged.branch),
            STAGING_COMMIT: staged.commit,
            FENCE: level,
            **(metadata or {}),
        }
        merge = Merge(
            staged.branch,
            self.branch,
            expected_head,
            message,
            signed,
            MERGE_SECONDS,
            level,
            squash=squash,
            allow_empty=not squash,
        )
        try:
            return self.lake.merge(self.repository, merge)
        except BranchDirty as dirty:
            raise LakeRefused(
                f"branch {self.branch!r} of {self.repository!r} has uncommitted objects, and nothing was "
                f"{self.kind.done}: commit or reset them first ({dirty})"
            ) from dirty
        except LandedElsewhere as landed:
            # It landed on top of changes by others to other paths; otherwise, the merge would have conflicted.
            return landed.commit
        except LakeUnavailable as unknown:
            return self._settle(staged, expected_head, unknown)

    def _settle(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> str:
        """Stop an unanswered merge, then read the branch and return the commit that the merge landed as.

        Raises `LakeUnavailable` if it did not land, or if that cannot be found out.
        """
        try:
            self.lake.drop_branch(self.repository, staged.branch)
            self.lake.barrier(self.repository, self.branch, MERGE_SECONDS)
            for commit in self.lake.log(self.repository, self.branch, MAX_RANGE):
                # With a soft fence, it may have landed on a head other than the expected one.
                if commit.metadata.get(STAGING_COMMIT) == staged.commit:
                    return commit.id
                if commit.id == expected_head:
                    break
        except LakeError as unreadable:
            raise LakeUnavailable(
                f"the {self.kind.noun} had no answer ({unknown}), and it could not be found out whether it landed "
                f"({unreadable}): look with `perago history {self.repository} {self.branch} --remote` before you run "
                "it again"
            ) from unknown
        raise LakeUnavailable(f"nothing was {self.kind.done}, run the command again: {unknown}") from unknown
