"""Claims an attempt and publishes its result, carrying out the protocol's decisions through the lake port.

`decide` reads the head and returns the next step; `execute` makes the one call that moves the branch.  The transaction
checks the attempt fence between the two.  That call has three outcomes: landed, refused, unknown (`settle`).

Some lakes are known to compare the head with the expected commit themselves.  On such a lake, an attempt that started
from the head does not read the head again: its merge expects the input commit, and the lake refuses the merge if the
head has moved.  The head is read again only after such a refusal.

If a publish is refused because the head moved, and the head had not been read or the task rebases, the publisher
decides again from the new head.  It does so only after the lake itself has said that nothing was published, so an
attempt can never publish twice.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from perago.errors import (
    HeadMoved,
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeRefused,
    LakeUnavailable,
    LandedElsewhere,
    PublishFenceError,
)
from perago.lake.base import FenceLevel, Merge, PublishingLake
from perago.protocol.changes import Changes, changes_between
from perago.protocol.metadata import EXPECTED_HEAD, PUBLISH_TRIES, REBASED_OVER, RESULT, STAGING_BASE
from perago.protocol.names import (
    claim_branch_name,
    replaced_tag_name,
)
from perago.protocol.outcome import LostToTwin
from perago.protocol.policies import POLICIES, REPLACE_SIGNED, SUPERSEDE, PolicyName, declaration_text
from perago.protocol.publication import (
    Commit,
    StagedWorkspace,
    TargetBranch,
    Workspace,
    WorkspacePublicationPlan,
    build_workspace_publication_plan,
)
from perago.protocol.rebase import reusable_staging_base
from perago.protocol.refusal import describe_unsigned
from perago.protocol.signing import Signature, recorded_result, recorded_result_anywhere
from perago.runtime.attempt.listing import list_view
from perago.runtime.attempt.publish_decision import (
    Decision,
    MergePlan,
    Move,
    Published,
    RelocatePlan,
    Result,
    RetryAfter,
)
from perago.runtime.attempt.publish_retry import PublishRetry
from perago.runtime.attempt.revoke import CheckCurrent, revoke
from perago.runtime.attempt.settle import PublishSettlement
from perago.runtime.attempt.staging import Staging
from perago.runtime.attempt.target_branch import Views, read_history, read_target

log = logging.getLogger("perago.publisher")


@dataclass(slots=True)
class Publisher:
    """Publishes the staged result of one execution."""

    lake: PublishingLake
    staging: Staging
    policy: PolicyName
    tries: PublishRetry
    rebases: bool = False
    """True if the task may publish on top of others' commits."""
    at_head: TargetBranch | None = None
    """The state of the branch before the body, if the attempt started from its head.  Used for one decision only."""
    claimed: str | None = field(default=None, init=False)
    in_flight: bool = field(default=False, init=False)
    """True while a publish request may still land.  The claim must not be dropped during that time."""
    fence_level: FenceLevel | None = field(default=None, init=False)
    replaced_unsigned: str = field(default="", init=False)
    """The tag that keeps the commit that this execution replaced although no task had signed it; usually empty."""
    _head_not_read: bool = field(default=False, init=False)
    """True if the last decision was made without reading the head, relying on the lake to compare heads."""
    _restaged: dict[str, StagedWorkspace] = field(default_factory=dict, init=False)
    """Results that were staged again on newer heads, keyed by head."""

    @property
    def signature(self) -> Signature:
        """The signature that identifies this execution's commits."""
        return self.staging.signature

    def revoke(self, check_current: CheckCurrent) -> None:
        """Make sure that no other attempt of this workflow step can still publish."""
        workspace = self.signature.workspace
        revoke(
            self.lake,
            self._repository,
            self.signature.attempt,
            target=workspace.branch,
            timeout=self.tries.timeout,
            check_current=check_current,
        )

    def reuse(self, target: TargetBranch | None) -> Published | None:
        """Return an earlier publication of the same work that is still on the branch, or None.

        The same work means the same step, task version, params, input commit and view.  The publication must be the
        head or, for a task that rebases, any commit since the input commit after which the view has not changed.  The
        caller must check the attempt fence before using it.
        """
        if not self.records_results or target is None:
            return None
        if not self.rebases:
            recorded = recorded_result(target.head, self.signature)
            return None if recorded is None else Published(target.head.id, recorded)
        for commit in target.advance if target.reached == "input" else ():
            recorded = recorded_result_anywhere(commit, self.signature)
            if (
                recorded is not None
                and self.views.is_valid_publication(commit)
                and self.views.same(commit.id, target.head.id)
            ):
                return Published(commit.id, recorded)
        return None

    def claim(self) -> None:
        """Become this attempt's only publisher.  Raises `LostToTwin` if another execution already is.

        The claim is not dropped on exit.  Otherwise, a twin could publish between this publication and Conductor's
        response to the completion.  The result sender drops the claim afterwards.
        """
        name = claim_branch_name(self.signature.attempt, self.signature.workspace.branch)
        try:
            self.lake.create_branch(self._repository, name, self.signature.workspace.ref)
        except LakeConflict as taken:
            raise LostToTwin(
                f"another execution of task {self.signature.attempt.task_id} is its publisher ({name} is taken)"
            ) from taken
        self.claimed = name

    def decide(self, staged: StagedWorkspace | None, result: Result) -> Decision:
        """Decide the next step, based on the head.  On return, all that this step needs is on a staging branch."""
        workspace = self.signature.workspace
        # A merge nearly always follows: look up its fence level while the head is read.
        level = self.staging.overlap(lambda: self.staging.level(staged)) if staged is not None else None
        target = self._target(level)
        if (done := self._find_done(target)) is not None:
            return done
        if self.rebases:
            target = self.views.with_advance_effect(self.signature.attempt, target)
        plan = build_workspace_publication_plan(
            self.signature.attempt, workspace, target, changed=staged is not None, policy=self.policy
        )
        log.info("head %s is %s: %s", target.head.id, plan.state, plan.step)
        match plan.step:
            case "keep":
                return Published(workspace.ref)
            case "restage":
                return self._restage(plan, target, staged, result)
            case "relocate":
                return self._plan_relocation(plan, target.head, staged)
            case _:
                assert staged is not None  # noqa: S101 - the decision table merges only changed results
                assert level is not None  # noqa: S101 - looked up above
                return self._plan_merge(plan, staged, result, level.result())

    def tag_replaced_head(self, move: RelocatePlan) -> None:
        """Tag the abandoned publication that is about to be replaced, so that it can still be found."""
        try:
            self.lake.create_tag(self._repository, move.tag, move.head, timeout=self.tries.seconds_left)
        except LakeConflict:
            log.info("head %s is already tagged", move.head)
        if move.unsigned is not None:
            log.warning(
                "replacing commit %s, which no Perago task made: it is on branch %r of %r right after the input, so it is "
                "taken for an abandoned publication, and kept under the tag %s; declare %s to refuse such commits",
                describe_unsigned(move.unsigned),
                self.signature.workspace.branch,
                self._repository,
                move.tag,
                declaration_text(REPLACE_SIGNED),
            )

    def execute(self, move: Move) -> Published | RetryAfter:
        """Make the one call that moves the branch.  The caller must check the attempt fence immediately before.

        A `Published` with a recorded result means that the call was refused but the same work was found on the branch.
        In that case, the caller must check the fence once more.
        """
        match move:
            case MergePlan(staged, merge):
                return self._merge(staged, merge)
            case RelocatePlan(staged, head):
                published = self._relocate(staged, head)
                self.replaced_unsigned = move.tag if move.unsigned is not None else ""
                return published

    # --- parts of a decision ---------------------------------------------------------------------------------

    def _target(self, level: Future[FenceLevel] | None) -> TargetBranch:
        """Return the branch's current state, or its state from before the body if the lake itself compares heads.

        The earlier state is used only once, only if the fence level is known to be hard, and never for a task that
        rebases: when many tasks publish to one branch, merging onto an old head is usually refused, and such a merge
        slows the other publishers down.
        """
        before, self.at_head = self.at_head, None
        self._head_not_read = before is not None and not self.rebases and _is_hard(level)
        if before is not None and self._head_not_read:
            return before
        return read_target(self.lake, self.signature.workspace, self.policy)

    def _plan_merge(
        self, plan: WorkspacePublicationPlan, staged: StagedWorkspace, result: Result, level: FenceLevel
    ) -> MergePlan:
        self.fence_level = level
        metadata = self.signature.publication(
            staged, expected_head=plan.expected_head, supersedes=plan.supersedes, fence=level
        )
        if result.recorded is not None:
            metadata[RESULT] = result.recorded
        if self.rebases:
            metadata[REBASED_OVER] = str(plan.rebased_over)
            metadata[STAGING_BASE] = staged.base
            metadata[PUBLISH_TRIES] = str(self.tries.count + 1)
        merge = Merge(
            staged.branch,
            self.signature.workspace.branch,
            plan.expected_head,
            self.signature.message("publishes"),
            metadata,
            self.tries.seconds_left,
            level,
            staged.base,
            fail_fast_when_busy=self.rebases,
        )
        return MergePlan(staged, merge)

    def _restage(
        self,
        plan: WorkspacePublicationPlan,
        target: TargetBranch,
        staged: StagedWorkspace | None,
        result: Result,
    ) -> Decision:
        """Plan a publication on top of the current head.  Commits nothing if the head already contains the result."""
        workspace, head = self.signature.workspace, plan.expected_head
        restaged = self._find_restaged(target)
        if restaged is None:
            listing = list_view(self.lake, self._repository, head, workspace.view)
            changes = _allowed_changes(workspace, changes_between(listing.states(result.base), result.states))
            if not changes:
                return Published(plan.supersedes or head)
            held_by = staged.commit if staged is not None else workspace.ref
            restaged = self._restaged[head] = self.staging.stage_on(head, changes, result, held_by)
        return self._plan_merge(plan, restaged, result, self.staging.level(restaged))

    def _find_restaged(self, target: TargetBranch) -> StagedWorkspace | None:
        """Return a result restaged by an earlier try that can be merged onto this head unchanged, or None."""
        base = reusable_staging_base(self.signature.attempt, target.advance, self._restaged)
        if base is None or (base != target.head.id and self.views.new_actions(base, target.head.id)):
            return None
        return self._restaged[base]

    def _find_done(self, target: TargetBranch) -> Published | None:
        """Return a publication that makes this one unnecessary, or None.

        That is either a publication by an earlier try of this execution, or an earlier publication of the same work.
        Raises `LostToTwin` if this execution has already tried to publish and a twin's publication is on the branch.
        """
        if self.tries.count and (made := self._settlement.by_this_attempt(target.advance)) is not None:
            # The lake refused every try so far.  If one was published nevertheless, use that publication.
            self._settlement.check_place(made, made.metadata.get(EXPECTED_HEAD, ""))
            return Published(made.id)
        return self.reuse(target)

    def _plan_relocation(
        self, plan: WorkspacePublicationPlan, head: Commit, staged: StagedWorkspace | None
    ) -> RelocatePlan:
        ref = self.signature.workspace.ref
        if self.staging.mode == "hard":
            raise PublishFenceError("PERAGO_FENCE=hard does not allow replacing a head by moving the branch")
        self.fence_level = self.staging.relocation_level
        source = staged or StagedWorkspace(self._repository, self.staging.branch_at_input(), ref)
        tag = replaced_tag_name(self.signature.attempt, head.id)
        return RelocatePlan(source, head.id, tag, head if plan.state == "unsigned-child" else None)

    # --- the two calls that move a branch, and their outcomes ------------------------------------------------

    def _merge(self, staged: StagedWorkspace, merge: Merge) -> Published | RetryAfter:
        self.in_flight = True
        try:
            with self.tries.timed_call():
                published = self.lake.merge(self._repository, merge)
        except LakeUnavailable as unknown:
            return self._settle(staged, merge.expected_head, unknown)
        except HeadMoved as moved:
            return self._head_moved(moved)
        except LandedElsewhere as elsewhere:
            self.in_flight = False
            # The lake did not compare heads, whatever the commit's metadata says.
            self.fence_level = "soft"
            self._settlement.check_parent(elsewhere.commit, merge.expected_head)
            return Published(elsewhere.commit)
        except (LakeRefused, LakeForbidden, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        return Published(published)

    def _relocate(self, staged: StagedWorkspace, head: str) -> Published:
        branch, seconds_left = self.signature.workspace.branch, self.tries.seconds_left
        self.in_flight = True
        try:
            with self.tries.timed_call():
                self.lake.relocate(self._repository, branch, staged.branch, head, seconds_left)
        except LakeUnavailable as unknown:
            return self._settle(staged, head, unknown)
        except LakeForbidden as protected:
            self.in_flight = False
            raise PublishFenceError(
                f"branch {branch!r} of {self._repository!r} may not be moved back over the abandoned "
                f"publication {head}: {protected}. On a protected branch declare {declaration_text(SUPERSEDE)}"
            ) from protected
        except (LakeRefused, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        return Published(staged.commit)

    def _settle(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> Published:
        """Find out how an unanswered publish ended.  Until that is known, the publish is treated as in flight."""
        landed = self._settlement.find(staged, expected_head, unknown)
        if landed is None:
            return self._refused(unknown)
        self.in_flight = False
        if landed.id != staged.commit:
            self._settlement.check_place(landed, expected_head)
        return Published(landed.id)

    def _head_moved(self, moved: HeadMoved) -> Published | RetryAfter:
        """Return a `RetryAfter` if the head had not been read, or if the task rebases and has time for another try.

        Otherwise handle the publish as refused.
        """
        if self._head_not_read:
            self.in_flight = False
            log.info("the head moved while the body ran, reading it now: %s", moved)
            return RetryAfter(0.0)
        pause = self.tries.next_pause() if self.rebases else None
        if pause is None:
            return self._refused(moved)
        self.in_flight = False
        log.info("publish try %d was refused, retrying in %.3f s: %s", self.tries.count, pause, moved)
        return RetryAfter(pause)

    def _refused(self, cause: LakeError) -> Published:
        """Return an earlier publication of the same work if there is one on the branch.

        Otherwise raise `LostToTwin` if a twin was first, or `PublishFenceError` if the fence held.
        """
        self.in_flight = False
        advance: Sequence[Commit] = ()
        try:
            target = read_history(self.lake, self.signature.workspace)
            if (reused := self.reuse(target)) is not None:
                return reused
            advance = target.advance
        except LakeError as unreadable:
            log.warning("could not read the branch after a refused publish: %s", unreadable)
        raise self._settlement.refusal(advance, cause, self.tries.count) from cause

    # --- helpers ---------------------------------------------------------------------------------------------

    @property
    def records_results(self) -> bool:
        """True if publications record their result, so that it can be reused."""
        return POLICIES[self.policy].records_results

    @property
    def _repository(self) -> str:
        return self.signature.workspace.repository

    @property
    def views(self) -> Views:
        """A helper that compares the task's view between commits."""
        return Views(self.lake, self.signature.workspace)

    @property
    def _settlement(self) -> PublishSettlement:
        views = self.views if self.rebases else None
        return PublishSettlement(self.lake, self.signature, self.tries.timeout, views)


def _is_hard(level: Future[FenceLevel] | None) -> bool:
    """Return whether the lake compares heads during the merge.  False if the level could not be determined."""
    return level is not None and level.exception() is None and level.result() == "hard"


def _allowed_changes(workspace: Workspace, changes: Changes) -> Changes:
    """Return only the changes that the task may make.

    Everything else under the prefix belongs to others and stays as it is at the head.
    """
    if workspace.view.writes is None and workspace.view.whole:
        return changes
    mine = [
        tuple(path for path in paths if workspace.view.may_change(workspace.prefix + path))
        for paths in (changes.put, changes.delete)
    ]
    return Changes(*mine)
