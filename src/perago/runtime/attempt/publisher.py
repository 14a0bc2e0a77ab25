"""Claiming and publishing: the protocol's decisions carried out over the lake port.

`decide` reads the head and says what is left to do; `carry_out` makes the one call that moves the branch.  Between the two
comes the attempt fence, which is the transaction's.  That call has three endings: landed, refused, unknown (`settling`).

Where the lake itself compares the head with the expected one, and was seen to, an attempt that began at the head does not
read it again: the merge expects A, and the lake refuses it if the head has moved.  Then the head is read.

A call that was refused since the head had moved is decided anew from the new head: where the head had not been read, and for
a task that rebases.  The rule: only after the lake's own word that nothing was published, so that no two tries of one
attempt can both land.
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
from perago.lake.base import FenceLevel, Lake, Merge
from perago.protocol.changes import Changes, changes_between
from perago.protocol.metadata import EXPECTED_HEAD, PUBLISH_TRIES, REBASED_OVER, RESULT, STAGING_BASE
from perago.protocol.names import (
    claim_branch_name,
    replaced_tag_name,
)
from perago.protocol.outcome import LostToTwin
from perago.protocol.policies import POLICIES, SUPERSEDE, PolicyName, declared
from perago.protocol.publication import (
    Commit,
    StagedWorkspace,
    TargetBranch,
    Workspace,
    WorkspacePublicationPlan,
    build_workspace_publication_plan,
)
from perago.protocol.rebase import still_fits
from perago.protocol.signing import Signature, recorded_result, recorded_work
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
    """Publishes what one execution has staged."""

    staging: Staging
    policy: PolicyName
    tries: PublishRetry
    rebases: bool = False
    """Whether it may publish on top of others' commits."""
    at_head: TargetBranch | None = None
    """The branch, where the attempt began at its head; good for one decision."""
    claimed: str | None = field(default=None, init=False)
    in_flight: bool = field(default=False, init=False)
    """Whether a publish request may still land: nobody may drop the claim then."""
    fence_level: FenceLevel | None = field(default=None, init=False)
    _unread: bool = field(default=False, init=False)
    """Whether the last decision was made without reading the head, so that only the lake has compared it."""
    _again: dict[str, StagedWorkspace] = field(default_factory=dict, init=False)
    """What was staged again, by the head that it was staged on."""

    @property
    def lake(self) -> Lake:
        """Where it publishes."""
        return self.staging.lake

    @property
    def signature(self) -> Signature:
        """What signs its commits."""
        return self.staging.signature

    def revoke(self, check_current: CheckCurrent) -> None:
        """Make sure that no other attempt of this workflow step can publish any more."""
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
        """This very work, done before and still on the branch; it counts only if the attempt is still current.

        It is the head.  For a task that rebases it is any commit since A, while the view has not changed since.
        """
        if not self.records_results or target is None:
            return None
        if not self.rebases:
            recorded = recorded_result(target.head, self.signature)
            return None if recorded is None else Published(target.head.id, recorded)
        for commit in target.advance if target.reached == "input" else ():
            recorded = recorded_work(commit, self.signature)
            if (
                recorded is not None
                and self.views.stands(commit)
                and self.views.same(commit.id, target.head.id)
            ):
                return Published(commit.id, recorded)
        return None

    def claim(self) -> None:
        """Become this attempt's one publisher, or raise `LostToTwin`.

        The claim is not dropped on exit: it must outlast the completion, or a twin could publish between the
        publication and Conductor's word on it.  Whoever sends the result drops it afterwards.
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
        """Decide by the head; what the decision needs on a staging branch is there when this returns."""
        workspace = self.signature.workspace
        # A merge is what nearly always follows; where its fence level has to be looked up, the head is read meanwhile.
        level = self.staging.overlap(lambda: self.staging.level(staged)) if staged is not None else None
        target = self._target(level)
        if (done := self._done_before(target)) is not None:
            return done
        if self.rebases:
            target = self.views.passed(self.signature.attempt, target)
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
                return self._to_relocate(plan, staged)
            case _:
                assert staged is not None  # noqa: S101 - the table merges only what changed
                assert level is not None  # noqa: S101 - asked for above
                return self._to_merge(plan, staged, result, level.result())

    def keep_replaced(self, move: RelocatePlan) -> None:
        """Have the abandoned publication to be found under a tag."""
        name = replaced_tag_name(self.signature.attempt, move.head)
        try:
            self.lake.create_tag(self._repository, name, move.head, timeout=self.tries.seconds_left)
        except LakeConflict:
            log.info("head %s is kept under its tag already", move.head)

    def carry_out(self, move: Move) -> Published | RetryAfter:
        """Make the one call that moves the branch; the attempt fence comes right before.

        A `Published` with a recorded result is a refused call that found the work done: it needs the fence once more.
        """
        match move:
            case MergePlan(staged, merge):
                return self._merge(staged, merge)
            case RelocatePlan(staged, head):
                return self._relocate(staged, head)

    # --- what a decision needs -------------------------------------------------------------------------------

    def _target(self, level: Future[FenceLevel] | None) -> TargetBranch:
        """The branch as it is now; as it was before the body where a merge will have the lake compare that with now.

        Only for a lake that was seen to compare (`fence_level`), only once, and not for a task that rebases: where many
        publish to one branch, the merge of an old head is refused more often than not, and hinders others.
        """
        before, self.at_head = self.at_head, None
        self._unread = before is not None and not self.rebases and _is_hard(level)
        if before is not None and self._unread:
            return before
        return read_target(self.lake, self.signature.workspace, self.policy)

    def _to_merge(
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
            put_off_is_an_answer=self.rebases,
        )
        return MergePlan(staged, merge)

    def _restage(
        self,
        plan: WorkspacePublicationPlan,
        target: TargetBranch,
        staged: StagedWorkspace | None,
        result: Result,
    ) -> Decision:
        """Publish on top of this task's own commits; where they already hold the result, commit nothing."""
        workspace, head = self.signature.workspace, plan.expected_head
        again = self._staged_before(target)
        if again is None:
            listing = list_view(self.lake, self._repository, head, workspace.view)
            changes = _within(workspace, changes_between(listing.states(result.base), result.states))
            if not changes:
                return Published(plan.supersedes or head)
            held_by = staged.commit if staged is not None else workspace.ref
            again = self._again[head] = self.staging.stage_on(head, changes, result, held_by)
        return self._to_merge(plan, again, result, self.staging.level(again))

    def _staged_before(self, target: TargetBranch) -> StagedWorkspace | None:
        """What an earlier try has staged again, if it may be merged onto this head as it is."""
        base = still_fits(self.signature.attempt, target.advance, self._again)
        if base is None or (base != target.head.id and self.views.new_actions(base, target.head.id)):
            return None
        return self._again[base]

    def _done_before(self, target: TargetBranch) -> Published | None:
        """What the branch shows as done: equal work of an earlier attempt, or what a twin or an earlier try published."""
        if self.tries.count and (made := self._settling.by_this_attempt(target.advance)) is not None:
            # The lake has refused every try so far.  If it published one all the same, that is the publication.
            self._settling.check_place(made, made.metadata.get(EXPECTED_HEAD, ""))
            return Published(made.id)
        return self.reuse(target)

    def _to_relocate(self, plan: WorkspacePublicationPlan, staged: StagedWorkspace | None) -> RelocatePlan:
        ref = self.signature.workspace.ref
        if self.staging.mode == "hard":
            raise PublishFenceError("PERAGO_FENCE=hard does not allow replacing a head by moving the branch")
        self.fence_level = self.staging.relocation_level
        source = staged or StagedWorkspace(self._repository, self.staging.branch_at_input(), ref)
        return RelocatePlan(source, plan.expected_head)

    # --- the two calls that move a branch, and how they end --------------------------------------------------

    def _merge(self, staged: StagedWorkspace, merge: Merge) -> Published | RetryAfter:
        self.in_flight = True
        try:
            with self.tries.one():
                published = self.lake.merge(self._repository, merge)
        except LakeUnavailable as unknown:
            return self._settle(staged, merge.expected_head, unknown)
        except HeadMoved as moved:
            return self._head_moved(moved)
        except LandedElsewhere as elsewhere:
            self.in_flight = False
            # Whatever the commit says: the lake has not compared.
            self.fence_level = "soft"
            self._settling.check_parent(elsewhere.commit, merge.expected_head)
            return Published(elsewhere.commit)
        except (LakeRefused, LakeForbidden, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        return Published(published)

    def _relocate(self, staged: StagedWorkspace, head: str) -> Published:
        branch, seconds_left = self.signature.workspace.branch, self.tries.seconds_left
        self.in_flight = True
        try:
            with self.tries.one():
                self.lake.relocate(self._repository, branch, staged.branch, head, seconds_left)
        except LakeUnavailable as unknown:
            return self._settle(staged, head, unknown)
        except LakeForbidden as protected:
            self.in_flight = False
            raise PublishFenceError(
                f"branch {branch!r} of {self._repository!r} may not be moved back over the abandoned "
                f"publication {head}: {protected}. On a protected branch declare {declared(SUPERSEDE)}"
            ) from protected
        except (LakeRefused, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        return Published(staged.commit)

    def _settle(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> Published:
        """Find out how an unanswered publish ended; while that is not known, it is in flight."""
        landed = self._settling.find(staged, expected_head, unknown)
        if landed is None:
            return self._refused(unknown)
        self.in_flight = False
        if landed.id != staged.commit:
            self._settling.check_place(landed, expected_head)
        return Published(landed.id)

    def _head_moved(self, moved: HeadMoved) -> Published | RetryAfter:
        """Refused for certain: to be decided anew, where nobody had read the head, or the task may publish on another."""
        if self._unread:
            self.in_flight = False
            log.info("the head is not what it was before the body, and is read now: %s", moved)
            return RetryAfter(0.0)
        pause = self.tries.next_pause() if self.rebases else None
        if pause is None:
            return self._refused(moved)
        self.in_flight = False
        log.info("try %d was refused, the next follows in %.3f s: %s", self.tries.count, pause, moved)
        return RetryAfter(pause)

    def _refused(self, cause: LakeError) -> Published:
        """What a refused publish means: the work is there already, a twin was first, or the fence held."""
        self.in_flight = False
        advance: Sequence[Commit] = ()
        try:
            target = read_history(self.lake, self.signature.workspace)
            if (reused := self.reuse(target)) is not None:
                return reused
            advance = target.advance
        except LakeError as unreadable:
            log.warning("the branch cannot be read after a refused publish: %s", unreadable)
        raise self._settling.refusal(advance, cause, self.tries.count) from cause

    # --- small parts -----------------------------------------------------------------------------------------

    @property
    def records_results(self) -> bool:
        """Whether a publication keeps its result, to answer equal work with."""
        return POLICIES[self.policy].records_results

    @property
    def _repository(self) -> str:
        return self.signature.workspace.repository

    @property
    def views(self) -> Views:
        """What the task sees, compared between commits."""
        return Views(self.lake, self.signature.workspace)

    @property
    def _settling(self) -> PublishSettlement:
        views = self.views if self.rebases else None
        return PublishSettlement(self.lake, self.signature, self.tries.timeout, views)


def _is_hard(level: Future[FenceLevel] | None) -> bool:
    """Whether a merge is compared by the lake; one that may not be made at all is not."""
    return level is not None and level.exception() is None and level.result() == "hard"


def _within(workspace: Workspace, changes: Changes) -> Changes:
    """The changes that the task may make; the rest of the prefix is others', and is what it is at the head."""
    if workspace.view.writes is None and workspace.view.whole:
        return changes
    mine = [
        tuple(path for path in paths if workspace.view.may_change(workspace.prefix + path))
        for paths in (changes.put, changes.delete)
    ]
    return Changes(*mine)
