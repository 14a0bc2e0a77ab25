"""After the call that moves a branch: the branch is read back where the answer alone does not tell how it ended.

    landed    the new commit's parent is compared with the expected head
    refused   the commits since A tell whether a twin was first or the fence held
    unknown   staging dropped → barrier → the branch is read: only then can the request not land any more

The rule: nothing is guessed and nothing is rolled back.  The claim stays whatever comes of an unknown publish: until
the barrier is confirmed the request may still land.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from perago.errors import LakeError, LakeUnavailable, PublishFenceError, PublishUnknownError
from perago.lake.base import FenceLevel, Lake
from perago.protocol.outcome import LostToTwin
from perago.protocol.publication import MAX_RANGE, Commit, StagedWorkspace, made_by, read_advance, way_on
from perago.protocol.signing import Signature, is_by_attempt, is_publication_of

log = logging.getLogger("perago.settling")


@dataclass(frozen=True, slots=True)
class Settling:
    """Reads back what became of one execution's publish; `timeout` is the barrier's."""

    lake: Lake
    signature: Signature
    timeout: float

    def find(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> str | None:
        """Stop what is in flight, then the commit that it landed as, or None; `PublishUnknownError` if not sure."""
        repository, branch = self.signature.workspace.repository, self.signature.workspace.branch
        try:
            self.lake.drop_branch(repository, staged.branch)
            self.lake.barrier(repository, branch, self.timeout)
            for commit in self.lake.log(repository, branch, MAX_RANGE):
                if is_publication_of(commit, staged, expected_head):
                    log.info("an unanswered publish had landed as %s", commit.id)
                    return commit.id
                if commit.id == expected_head:
                    break
        except LakeError as unreadable:
            raise PublishUnknownError(
                f"publishing to {branch!r} of {repository!r} had no answer ({unknown}), and it could "
                f"not be settled ({unreadable}): it may have landed, or may still. The retry stops it and decides by "
                f"the head"
            ) from unknown
        return None

    def advance(self) -> Sequence[Commit]:
        """The commits on the branch since A."""
        workspace = self.signature.workspace
        commits = self.lake.log(workspace.repository, workspace.branch, MAX_RANGE + 1)
        return read_advance(workspace.ref, commits).advance

    def refusal(self, advance: Sequence[Commit], cause: LakeError) -> LostToTwin | PublishFenceError:
        """What a refused publish means: a twin was first, or the fence held."""
        attempt, workspace = self.signature.attempt, self.signature.workspace
        if any(is_by_attempt(commit, attempt) for commit in advance):
            return LostToTwin(f"another execution of task {attempt.task_id} has published: {cause}")
        head = f" The head is {advance[0].id} ({made_by(advance[0])})." if advance else ""
        return PublishFenceError(
            f"branch {workspace.branch!r} of {workspace.repository!r} was not moved: {cause}. Input ref "
            f"{workspace.ref}.{head} {way_on(attempt, workspace, advance)}"
        )

    def check_parent(self, published: str, expected_head: str, level: FenceLevel | None) -> None:
        """Past a soft fence a lost race shows here: say so, roll nothing back."""
        try:
            parent = self.lake.commit_at(self.signature.workspace.repository, published).first_parent
        except LakeUnavailable as error:
            if level == "soft":
                raise
            log.info(
                "commit %s is not read back, the lake itself has compared its parent: %s", published, error
            )
            return
        if parent != expected_head:
            raise PublishFenceError(
                f"commit {published} landed on {parent}, not on the expected head "
                f"{expected_head}: the branch moved while a soft fence was open. Nothing is rolled back; both "
                f"are in the branch's history. `perago fence install` closes this window"
            )
