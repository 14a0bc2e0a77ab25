"""Staging, claiming and publishing: the protocol's decisions carried out over the lake port.

The order is the guarantee, so it stands in the code as it is named in the design: claim → read head, decide →
attempt fence → the one call that moves the branch.  That call has three endings: landed, refused, unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from perago.errors import (
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeRefused,
    LakeUnavailable,
    PublishFenceError,
    PublishUnknownError,
)
from perago.lake.base import FenceLevel, Lake, Merge
from perago.protocol.changes import Changes, FileState, changes_between
from perago.protocol.metadata import RESULT
from perago.protocol.names import (
    claim_branch_name,
    replaced_tag_name,
    staging_branch_name,
)
from perago.protocol.outcome import LostToTwin
from perago.protocol.policies import POLICIES, SUPERSEDE, PolicyName, declared
from perago.protocol.publication import (
    MAX_RANGE,
    Commit,
    StagedWorkspace,
    WorkspacePublicationPlan,
    build_workspace_publication_plan,
    made_by,
    read_advance,
    way_on,
)
from perago.protocol.signing import Signature, is_by_attempt, is_publication_of, recorded_result
from perago.runtime.attempt.overlap import Overlap, at_once
from perago.runtime.attempt.revoking import revoke
from perago.runtime.attempt.target import read_target
from perago.runtime.attempt.workdir import Listing, list_prefix
from perago.runtime.own_branches import drop_quietly
from perago.settings import FenceMode

log = logging.getLogger("perago.publisher")


Put = Callable[[str, Sequence[str], str], None]
"""Puts paths of a result onto a branch, uncommitted; the last argument is a commit that holds the result, if any."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an execution has to publish: the whole prefix as it should be, how that differs from A, and its bytes."""

    states: Mapping[str, FileState]
    changes: Changes
    recorded: str | None
    put: Put
    base: Listing | None = None
    """A as it was read, where it was."""


@dataclass(frozen=True, slots=True)
class Published:
    """The ref to answer with; `recorded` is the result of earlier, equal work that it stands for."""

    ref: str
    recorded: str | None = None


@dataclass(slots=True)
class Publisher:
    """Publishes one execution's result; `cleanup` gets what must be dropped on every exit."""

    lake: Lake
    signature: Signature
    policy: PolicyName
    fence: Callable[[], None]
    cleanup: ExitStack
    merge_timeout: float
    mode: FenceMode = "auto"
    overlap: Overlap = at_once
    claimed: str | None = field(default=None, init=False)
    in_flight: bool = field(default=False, init=False)
    """Whether a publish request may still land: nobody may drop the claim then."""
    fence_level: FenceLevel | None = field(default=None, init=False)

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
        """The head, where it is this very work done before and this attempt is still current."""
        if not self.records_results:
            return None
        head = head or self.lake.head(self._repository, self.signature.workspace.branch)
        recorded = recorded_result(head, self.signature)
        if recorded is None:
            return None
        self.fence()
        return Published(head.id, recorded)

    def new_staging(self, base: str) -> str:
        """Make this execution's branch at `base`; it is dropped on every exit."""
        on = None if base == self.signature.workspace.ref else base
        name = staging_branch_name(self.signature.attempt, self.signature.execution_id, on=on)
        self.cleanup.callback(drop_quietly, self.lake, self._repository, name)
        self.lake.create_branch(self._repository, name, base)
        return name

    def stage(self, base: str, changes: Changes, result: Result, held_by: str = "") -> StagedWorkspace:
        """Put the changes on a branch of this execution's own, made at `base`, and commit them."""
        level = self.overlap(lambda: self._level_of(base))
        branch = self.new_staging(base)
        objects = [self.signature.workspace.prefix + path for path in changes.delete]
        if objects:
            self.lake.delete(self._repository, branch, objects)
        result.put(branch, changes.put, held_by)
        return self.commit_staged(branch, base, level.result())

    def commit_staged(self, branch: str, base: str, level: FenceLevel | None = None) -> StagedWorkspace:
        """Sign and commit what is on a staging branch made at `base`, whose fence level may be known."""
        metadata = self.signature.staging(branch, base=base, fence=level or self._level_of(base))
        commit = self.lake.commit(self._repository, branch, self.signature.message("stages"), metadata)
        return StagedWorkspace(self._repository, branch, commit)

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

    def publish(self, staged: StagedWorkspace | None, result: Result) -> Published:
        """Decide by the head as it is now, and make the result visible."""
        workspace = self.signature.workspace
        # A merge is what nearly always follows: its fence level is looked up while the head is read.
        level = self.overlap(lambda: self._level(staged)) if staged is not None else None
        target = read_target(self.lake, workspace, self.policy)
        if (reused := self.reuse(target.head)) is not None:
            return reused
        plan = build_workspace_publication_plan(
            self.signature.attempt, workspace, target, changed=staged is not None, policy=self.policy
        )
        log.info("head %s is %s: %s", target.head.id, plan.state, plan.step)
        match plan.step:
            case "keep":
                self.fence()
                return Published(workspace.ref)
            case "restage":
                return self._restage(plan, staged, result)
            case "relocate":
                return self._relocate(plan, staged)
            case _:
                assert staged is not None  # noqa: S101 - the table merges only what changed
                assert level is not None  # noqa: S101 - asked for above
                return self._merge(plan, staged, result, level.result())

    # --- the three ways to move a branch -------------------------------------------------------------------

    def _merge(
        self, plan: WorkspacePublicationPlan, staged: StagedWorkspace, result: Result, level: FenceLevel
    ) -> Published:
        workspace = self.signature.workspace
        self.fence_level = level
        metadata = self.signature.publication(
            staged, expected_head=plan.expected_head, supersedes=plan.supersedes, fence=self.fence_level
        )
        if result.recorded is not None:
            metadata[RESULT] = result.recorded
        merge = Merge(
            staged.branch,
            workspace.branch,
            plan.expected_head,
            self.signature.message("publishes"),
            metadata,
            self.merge_timeout,
            self.fence_level,
        )
        self.fence()
        self.in_flight = True
        try:
            published = self.lake.merge(self._repository, merge)
        except LakeUnavailable as unknown:
            return self._settle(staged, plan.expected_head, unknown)
        except (LakeRefused, LakeForbidden, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        self._check_parent(published, plan.expected_head)
        return Published(published)

    def _restage(
        self, plan: WorkspacePublicationPlan, staged: StagedWorkspace | None, result: Result
    ) -> Published:
        """Publish on top of this task's own commits; where they already hold the result, commit nothing."""
        workspace, head = self.signature.workspace, plan.expected_head
        listing = list_prefix(self.lake, self._repository, head, workspace.prefix)
        changes = changes_between(listing.states(result.base), result.states)
        if not changes:
            self.fence()
            return Published(head)
        held_by = staged.commit if staged is not None else workspace.ref
        again = self.stage(head, changes, result, held_by)
        return self._merge(plan, again, result, self._level(again))

    def _relocate(self, plan: WorkspacePublicationPlan, staged: StagedWorkspace | None) -> Published:
        """Replace an abandoned publication, which stays to be found under a tag."""
        workspace, head = self.signature.workspace, plan.expected_head
        if self.mode == "hard":
            raise PublishFenceError("PERAGO_FENCE=hard does not allow replacing a head by moving the branch")
        self.fence_level = "soft" if self._level_of(workspace.ref) == "soft" else "hard"
        source = staged or StagedWorkspace(self._repository, self.new_staging(workspace.ref), workspace.ref)
        self.fence()  # a stale attempt must not leave a tag that says it replaced something
        try:
            self.lake.create_tag(self._repository, replaced_tag_name(self.signature.attempt, head), head)
        except LakeConflict:
            log.info("head %s is kept under its tag already", head)
        self.fence()
        self.in_flight = True
        try:
            self.lake.relocate(self._repository, workspace.branch, source.branch, head)
        except LakeUnavailable as unknown:
            return self._settle(source, head, unknown)
        except LakeForbidden as protected:
            self.in_flight = False
            raise PublishFenceError(
                f"branch {workspace.branch!r} of {self._repository!r} may not be moved back over the abandoned "
                f"publication {head}: {protected}. On a protected branch declare {declared(SUPERSEDE)}"
            ) from protected
        except (LakeRefused, LakeNotFound) as refused:
            return self._refused(refused)
        self.in_flight = False
        return Published(source.commit)

    # --- endings ---------------------------------------------------------------------------------------------

    def _settle(self, staged: StagedWorkspace, expected_head: str, unknown: LakeUnavailable) -> Published:
        """Find out how an unanswered publish ended: stop what is in flight, then read the branch.

        The claim stays whatever comes of it: until the barrier is confirmed the request may still land.
        """
        workspace = self.signature.workspace
        try:
            self.lake.drop_branch(self._repository, staged.branch)
            self.lake.barrier(self._repository, workspace.branch, self.merge_timeout)
            for commit in self.lake.log(self._repository, workspace.branch, MAX_RANGE):
                if is_publication_of(commit, staged, expected_head):
                    log.info("an unanswered publish had landed as %s", commit.id)
                    self.in_flight = False
                    return Published(commit.id)
                if commit.id == expected_head:
                    break
        except LakeError as unreadable:
            raise PublishUnknownError(
                f"publishing to {workspace.branch!r} of {self._repository!r} had no answer ({unknown}), and it could "
                f"not be settled ({unreadable}): it may have landed, or may still. The retry stops it and decides by "
                f"the head"
            ) from unknown
        return self._refused(unknown)

    def _refused(self, cause: LakeError) -> Published:
        """What a refused publish means: the work is there already, a twin was first, or the fence held."""
        attempt, workspace = self.signature.attempt, self.signature.workspace
        self.in_flight = False
        try:
            if (reused := self.reuse()) is not None:
                return reused
            advance = read_advance(
                workspace.ref, self.lake.log(self._repository, workspace.branch, MAX_RANGE + 1)
            ).advance
        except LakeError as unreadable:
            log.warning("the branch cannot be read after a refused publish: %s", unreadable)
            advance = ()
        if any(is_by_attempt(commit, attempt) for commit in advance):
            raise LostToTwin(f"another execution of task {attempt.task_id} has published: {cause}") from cause
        head = f" The head is {advance[0].id} ({made_by(advance[0])})." if advance else ""
        raise PublishFenceError(
            f"branch {workspace.branch!r} of {self._repository!r} was not moved: {cause}. Input ref "
            f"{workspace.ref}.{head} {way_on(attempt, workspace, advance)}"
        ) from cause

    def _check_parent(self, published: str, expected_head: str) -> None:
        """Past a soft fence a lost race shows here: say so, roll nothing back."""
        try:
            parent = self.lake.commit_at(self._repository, published).first_parent
        except LakeUnavailable as error:
            if self.fence_level == "soft":
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

    # --- small parts -----------------------------------------------------------------------------------------

    @property
    def records_results(self) -> bool:
        """Whether a publication keeps its result, to answer equal work with."""
        return POLICIES[self.policy].records_results

    @property
    def _repository(self) -> str:
        return self.signature.workspace.repository

    def _level(self, staged: StagedWorkspace) -> FenceLevel:
        level = self._level_of(staged.commit)
        if self.mode == "hard" and level == "soft":
            raise PublishFenceError(
                f"PERAGO_FENCE=hard, but {staged.commit} of {self._repository!r} "
                f"{self.lake.why_soft(self._repository, staged.commit, self.signature.workspace.branch)}"
            )
        return level

    def _level_of(self, ref: str) -> FenceLevel:
        return "soft" if self.mode == "soft" else self.lake.fence_level(self._repository, ref)
