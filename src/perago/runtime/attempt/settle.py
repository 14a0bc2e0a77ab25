"""Settles a publish: reads the branch back if the response alone does not show how the call ended.

    landed    on the expected head, the publication is valid; on any other commit, it is valid only if the task rebases
              and its view is the same there
    refused   the commits since the input commit show whether a twin was first or the fence held
    unknown   drop the staging branch → barrier → read the branch; only then can the request no longer land

Nothing is guessed and nothing is rolled back.  The claim of an unknown publish is kept, because the request may still
land until the barrier is confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from perago.errors import LakeError, LakeUnavailable, PublishFenceError, PublishUnknownError
from perago.lake.base import PublishingLake
from perago.protocol.metadata import EXECUTION_ID, FENCE
from perago.protocol.outcome import LostToTwin
from perago.protocol.publication import MAX_RANGE, Commit, StagedWorkspace
from perago.protocol.refusal import FROM_CURRENT_HEAD, Refusal, made_by, moved_by
from perago.protocol.signing import Signature, is_by_attempt, is_publication_of
from perago.runtime.attempt.target_branch import Views

log = logging.getLogger("perago.settling")


@dataclass(frozen=True, slots=True)
class PublishSettlement:
    """Finds out how one execution's publish ended.  `timeout` limits the barrier call."""

    lake: PublishingLake
    signature: Signature
    timeout: float
    views: Views | None = None
    """Compares views between commits.  Set only if the task may publish on top of others' commits."""

    def find(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> Commit | None:
        """Stop the request in flight, then return the commit that it landed as, or None if it did not land.

        Raises `PublishUnknownError` if this cannot be determined.
        """
        repository, branch = self.signature.workspace.repository, self.signature.workspace.branch
        try:
            self.lake.drop_branch(repository, staged.branch)
            self.lake.barrier(repository, branch, self.timeout)
            for commit in self.lake.log(repository, branch, MAX_RANGE):
                # The parent does not matter here: `check_place` decides whether the commit is valid on it.
                if is_publication_of(commit, staged):
                    log.info("an unanswered publish had landed as %s", commit.id)
                    return commit
                if commit.id == expected_head:
                    break
        except LakeError as unreadable:
            raise PublishUnknownError(
                f"publishing to {branch!r} of {repository!r} had no answer ({unknown}), and it could "
                f"not be settled ({unreadable}): it may have landed, or may still. The retry stops it and decides by "
                f"the head"
            ) from unknown
        return None

    def by_this_attempt(self, advance: Sequence[Commit]) -> Commit | None:
        """Return this execution's publication among the commits since the input commit, or None.

        Raises `LostToTwin` if a twin has published.
        """
        attempt = self.signature.attempt
        for commit in advance:
            if is_by_attempt(commit, attempt):
                if commit.metadata.get(EXECUTION_ID) == self.signature.execution_id:
                    return commit
                raise LostToTwin(f"another execution of task {attempt.task_id} has published {commit.id}")
        return None

    def refusal(
        self, advance: Sequence[Commit], cause: LakeError, tries: int
    ) -> LostToTwin | PublishFenceError:
        """Return the error for a refused publish: `LostToTwin` if a twin was first, else `PublishFenceError`."""
        attempt, workspace = self.signature.attempt, self.signature.workspace
        if any(is_by_attempt(commit, attempt) for commit in advance):
            return LostToTwin(f"another execution of task {attempt.task_id} has published: {cause}")
        tried = f" after {tries} tries" if tries > 1 else ""
        what = f"branch {workspace.branch!r} of {workspace.repository!r} was not moved{tried}: {cause}."
        if not advance:
            return PublishFenceError(Refusal(what, FROM_CURRENT_HEAD, f"input ref {workspace.ref}.").text())
        moved = moved_by(attempt, workspace, advance)
        refs = f"Input ref {workspace.ref}. The head is {advance[0].id} ({made_by(advance[0])})."
        return PublishFenceError(
            Refusal(moved.cause, moved.next_step, f"{moved.details}{what} {refs}").text()
        )

    def check_parent(self, published: str, expected_head: str) -> None:
        """Check a publication that landed on a commit other than the expected head.

        Raises `PublishFenceError` unless the task rebases and its view is the same at that commit.
        """
        commit = self.lake.commit_at(self.signature.workspace.repository, published)
        self.check_place(commit, expected_head)

    def check_place(self, commit: Commit, expected_head: str) -> None:
        """Raise `PublishFenceError` unless the commit is a valid publication where it landed.

        A publication is valid on the expected head.  If the task rebases, it is also valid on a commit with the same
        view as the commit that it was staged on.
        """
        if commit.first_parent == expected_head:
            return
        if self.views is not None and self.views.is_valid_publication(commit):
            log.info("commit %s landed on %s, where the view is the same", commit.id, commit.first_parent)
            return
        changed = "" if self.views is None else ", and what this task sees differs there"
        why, remedy = (
            "the branch moved while a soft fence was open",
            "`perago fence install` closes this window",
        )
        if commit.metadata.get(FENCE) == "hard":
            why = "the server did not compare heads, though it was seen to before"
            remedy = "Are its actions switched off (`actions.enabled`)? Run `perago fence prove`"
        raise PublishFenceError(
            f"commit {commit.id} landed on {commit.first_parent}, not on the expected head "
            f"{expected_head}{changed}: {why}. Nothing is rolled back; both are in the branch's history. {remedy}"
        )
