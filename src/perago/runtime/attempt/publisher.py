"""Claiming and publishing: the protocol's decisions carried out over the lake port.

`decide` reads the head and says what is left to do; `carry_out` makes the one call that moves the branch.  Between the two
comes the attempt fence, which is the transaction's.  That call has three endings: landed, refused, unknown (`settling`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from perago.errors import (
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeRefused,
    LakeUnavailable,
    PublishFenceError,
)
from perago.lake.base import FenceLevel, Lake, Merge
from perago.protocol.changes import changes_between
from perago.protocol.metadata import RESULT
from perago.protocol.names import (
    claim_branch_name,
    replaced_tag_name,
)
from perago.protocol.outcome import LostToTwin
from perago.protocol.policies import POLICIES, SUPERSEDE, PolicyName, declared
from perago.protocol.publication import (
    Commit,
    StagedWorkspace,
    WorkspacePublicationPlan,
    build_workspace_publication_plan,
)
from perago.protocol.signing import Signature, recorded_result
from perago.runtime.attempt.listing import list_view
from perago.runtime.attempt.result import ByMerge, ByRelocation, Decision, Move, Published, Result
from perago.runtime.attempt.revoking import revoke
from perago.runtime.attempt.settling import Settling
from perago.runtime.attempt.staging import Staging
from perago.runtime.attempt.target import read_target

log = logging.getLogger("perago.publisher")


@dataclass(slots=True)
class Publisher:
    """Publishes what one execution has staged."""

    staging: Staging
    policy: PolicyName
    merge_timeout: float
    claimed: str | None = field(default=None, init=False)
    in_flight: bool = field(default=False, init=False)
    """Whether a publish request may still land: nobody may drop the claim then."""
    fence_level: FenceLevel | None = field(default=None, init=False)

    @property
    def lake(self) -> Lake:
        """Where it publishes."""
        return self.staging.lake

    @property
    def signature(self) -> Signature:
        """What signs its commits."""
        return self.staging.signature

    def revoke(self) -> None:
        """Make sure that no earlier attempt of this workflow step can publish any more."""
        workspace = self.signature.workspace
        revoke(
            self.lake,
            self._repository,
            self.signature.attempt,
            target=workspace.branch,
            timeout=self.merge_timeout,
        )

    def reuse(self, head: Commit | None = None) -> Published | None:
        """The head, where it is this very work done before; it counts only if the attempt is still current."""
        if not self.records_results:
            return None
        head = head or self.lake.head(self._repository, self.signature.workspace.branch)
        recorded = recorded_result(head, self.signature)
        return None if recorded is None else Published(head.id, recorded)

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
        """Decide by the head as it is now; what the decision needs on a staging branch is there when this returns."""
        workspace = self.signature.workspace
        # A merge is what nearly always follows: its fence level is looked up while the head is read.
        level = self.staging.overlap(lambda: self.staging.level(staged)) if staged is not None else None
        target = read_target(self.lake, workspace, self.policy)
        if (reused := self.reuse(target.head)) is not None:
            return reused
        plan = build_workspace_publication_plan(
            self.signature.attempt, workspace, target, changed=staged is not None, policy=self.policy
        )
        log.info("head %s is %s: %s", target.head.id, plan.state, plan.step)
        match plan.step:
            case "keep":
                return Published(workspace.ref)
            case "restage":
                return self._restage(plan, staged, result)
            case "relocate":
                return self._to_relocate(plan, staged)
            case _:
                assert staged is not None  # noqa: S101 - the table merges only what changed
                assert level is not None  # noqa: S101 - asked for above
                return self._to_merge(plan, staged, result, level.result())

    def keep_replaced(self, move: ByRelocation) -> None:
        """Have the abandoned publication to be found under a tag."""
        name = replaced_tag_name(self.signature.attempt, move.head)
        try:
            self.lake.create_tag(self._repository, name, move.head)
        except LakeConflict:
            log.info("head %s is kept under its tag already", move.head)

    def carry_out(self, move: Move) -> Published:
        """Make the one call that moves the branch; the attempt fence comes right before.

        A `Published` with a recorded result is a refused call that found the work done: it needs the fence once more.
        """
        match move:
            case ByMerge(staged, merge):
                return self._merge(staged, merge)
            case ByRelocation(staged, head):
                return self._relocate(staged, head)

    # --- what a decision needs -------------------------------------------------------------------------------

    def _to_merge(
        self, plan: WorkspacePublicationPlan, staged: StagedWorkspace, result: Result, level: FenceLevel
    ) -> ByMerge:
        self.fence_level = level
        metadata = self.signature.publication(
            staged, expected_head=plan.expected_head, supersedes=plan.supersedes, fence=level
        )
        if result.recorded is not None:
            metadata[RESULT] = result.recorded
        merge = Merge(
            staged.branch,
            self.signature.workspace.branch,
            plan.expected_head,
            self.signature.message("publishes"),
            metadata,
            self.merge_timeout,
            level,
        )
        return ByMerge(staged, merge)

    def _restage(
        self, plan: WorkspacePublicationPlan, staged: StagedWorkspace | None, result: Result
    ) -> Decision:
        """Publish on top of this task's own commits; where they already hold the result, commit nothing."""
        workspace, head = self.signature.workspace, plan.expected_head
        listing = list_view(self.lake, self._repository, head, workspace.view)
        changes = changes_between(listing.states(result.base), result.states)
        if not changes:
            return Published(head)
        held_by = staged.commit if staged is not None else workspace.ref
        again = self.staging.stage_on(head, changes, result, held_by)
        return self._to_merge(plan, again, result, self.staging.level(again))

    def _to_relocate(self, plan: WorkspacePublicationPlan, staged: StagedWorkspace | None) -> ByRelocation:
        ref = self.signature.workspace.ref
        if self.staging.mode == "hard":
            raise PublishFenceError("PERAGO_FENCE=hard does not allow replacing a head by moving the branch")
        self.fence_level = "soft" if self.staging.level_of(ref) == "soft" else "hard"
        source = staged or StagedWorkspace(self._repository, self.staging.new_branch(ref), ref)
        return ByRelocation(source, plan.expected_head)

    # --- the two calls that move a branch, and how they end --------------------------------------------------

    def _merge(self, staged: StagedWorkspace, merge: Merge) -> Published:
        self.in_flight = True
        try:
            published = self.lake.merge(self._repository, merge)
        except LakeUnavailable as unknown:
            return self._settle(staged, merge.expected_head, unknown)
        except (LakeRefused, LakeForbidden, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        self._settling.check_parent(published, merge.expected_head, self.fence_level)
        return Published(published)

    def _relocate(self, staged: StagedWorkspace, head: str) -> Published:
        branch = self.signature.workspace.branch
        self.in_flight = True
        try:
            self.lake.relocate(self._repository, branch, staged.branch, head)
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
        return Published(landed)

    def _refused(self, cause: LakeError) -> Published:
        """What a refused publish means: the work is there already, a twin was first, or the fence held."""
        self.in_flight = False
        advance: Sequence[Commit] = ()
        try:
            if (reused := self.reuse()) is not None:
                return reused
            advance = self._settling.advance()
        except LakeError as unreadable:
            log.warning("the branch cannot be read after a refused publish: %s", unreadable)
        raise self._settling.refusal(advance, cause) from cause

    # --- small parts -----------------------------------------------------------------------------------------

    @property
    def records_results(self) -> bool:
        """Whether a publication keeps its result, to answer equal work with."""
        return POLICIES[self.policy].records_results

    @property
    def _repository(self) -> str:
        return self.signature.workspace.repository

    @property
    def _settling(self) -> Settling:
        return Settling(self.lake, self.signature, self.merge_timeout)
