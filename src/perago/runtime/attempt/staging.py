"""Creates one execution's staging branches, writes its result to them, and makes signed commits there.

Every branch is registered for cleanup before it is created, so that no exit path leaves one behind.  Staging never
moves the target branch.

The fence level of a merge depends on the lakeFS actions in the staged commit.  If only this execution has written to
the branch, and it wrote no actions, the actions are the same as in the base commit.  The base commit's actions are
looked up only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perago.errors import NothingToCommit, PublishFenceError
from perago.lake.base import FenceLevel, StagingLake, Upload
from perago.protocol.changes import Changes
from perago.protocol.names import staging_branch_name
from perago.protocol.paths import in_actions
from perago.protocol.publication import StagedWorkspace
from perago.protocol.signing import Signature
from perago.runtime.attempt.context import Submit
from perago.runtime.attempt.observer import Traffic
from perago.runtime.attempt.publish_decision import Result
from perago.runtime.internal_branches import drop_quietly
from perago.settings import FenceMode


@dataclass(frozen=True, slots=True)
class Staging:
    """Stages one execution's result.

    Its branches are registered with `cleanup`, which drops them however the execution ends.
    """

    lake: StagingLake
    signature: Signature
    cleanup: ExitStack
    mode: FenceMode
    overlap: Submit
    traffic: Traffic
    _created: set[str] = field(default_factory=set, init=False)

    def new_branch(self, base: str) -> str:
        """Create a staging branch for this execution at `base`.  The branch is dropped however the execution ends."""
        name = self.name_on(base)
        self.cleanup.callback(drop_quietly, self.lake, self._repository, name)
        self.lake.create_branch(self._repository, name, base)
        self._created.add(name)
        return name

    def branch_at_input(self) -> str:
        """Return a staging branch whose head is the input commit.

        If the body worked on a branch, returns that branch, which has no commits yet.  Otherwise creates a new branch.
        """
        ref = self.signature.workspace.ref
        return name if (name := self.name_on(ref)) in self._created else self.new_branch(ref)

    def stage(self, result: Result) -> StagedWorkspace | None:
        """Commit the result on a branch at the input commit.

        Returns None, and commits nothing, if the result equals the input.  A branch that the body worked on without
        changing anything is kept until cleanup, so that a failure to drop it cannot affect the result.
        """
        base = self.signature.workspace.ref
        if isinstance(result.source, Path):
            changed = set(result.changes.put)
            self.traffic.save(sum(state.size for path, state in result.states.items() if path not in changed))
            return self.stage_on(base, result.changes, result) if result.changes else None
        branch = result.source.name
        if result.changes:
            try:
                staged = self._commit(branch, base, result.recorded)
            except NothingToCommit:
                return None  # the checksums were inconclusive; the lake compared the bytes
            result.source.check_commit(staged.commit)
            return staged
        return None

    def stage_on(self, base: str, changes: Changes, result: Result, held_by: str = "") -> StagedWorkspace:
        """Commit the changes on a new branch at `base`.

        If the result is on a branch rather than in a folder, its objects are copied from the commit `held_by`.
        """
        # Warm the lake's cache: the level is looked up again when the merge is planned.
        level = self.overlap(lambda: self.level_of(base))
        branch = self.new_branch(base)
        if changes.delete:
            self.lake.delete(self._repository, branch, self._objects(changes.delete))
        if isinstance(result.source, Path):
            self._upload(branch, result.source, changes, result)
        else:
            self.lake.copy(self._repository, branch, held_by, self._objects(changes.put))
        written = self._objects((*changes.put, *changes.delete))
        same_actions = not any(map(in_actions, written))
        level.result()
        return self._commit(branch, base, result.recorded, same_actions=same_actions)

    def level(self, staged: StagedWorkspace) -> FenceLevel:
        """Return the fence level for merging this staged result.

        Raises `PublishFenceError` if the level is soft and the operator requires a hard fence.
        """
        level = self.level_of(staged.base if staged.same_actions else staged.commit)
        if self.mode == "hard" and level == "soft":
            raise PublishFenceError(
                f"PERAGO_FENCE=hard, but {staged.commit} of {self._repository!r} "
                f"{self.lake.fence_gap(self._repository, staged.commit, self.signature.workspace.branch)}"
            )
        return level

    @property
    def relocation_level(self) -> FenceLevel:
        """The fence level for moving the branch to a staged commit."""
        return "soft" if self.mode == "soft" else self.lake.relocation_level

    def level_of(self, ref: str) -> FenceLevel:
        """Return the fence level for merging this commit."""
        return "soft" if self.mode == "soft" else self.lake.fence_level(self._repository, ref)

    def name_on(self, base: str) -> str:
        """Return the name of this execution's staging branch at `base`."""
        on = None if base == self.signature.workspace.ref else base
        return staging_branch_name(self.signature.attempt, self.signature.execution_id, on=on)

    @property
    def _repository(self) -> str:
        return self.signature.workspace.repository

    def _objects(self, paths: Sequence[str]) -> list[str]:
        return [self.signature.workspace.prefix + path for path in paths]

    def _upload(self, branch: str, folder: Path, changes: Changes, result: Result) -> None:
        files = []
        for path, name in zip(changes.put, self._objects(changes.put), strict=True):
            state = result.states[path]
            files.append(Upload(folder / path, name, state.size, state.checksum or ""))
        self.lake.upload(self._repository, branch, files, self.traffic.up)

    def _commit(
        self, branch: str, base: str, recorded: str | None, *, same_actions: bool = False
    ) -> StagedWorkspace:
        # A staged commit becomes a head only by relocation; a merge creates and signs another commit.
        metadata = self.signature.staging(branch, base=base, fence=self.relocation_level, recorded=recorded)
        commit = self.lake.commit(self._repository, branch, self.signature.message("stages"), metadata)
        return StagedWorkspace(self._repository, branch, commit, base, same_actions)
