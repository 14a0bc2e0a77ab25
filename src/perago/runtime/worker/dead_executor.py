"""What a dead executor leaves behind, removed by name: the workdir and staging branches of its executions.

Its staging goes before anything is said about the attempt.  The claim of one that died while it published stays: its
request may be in flight, and the claim tells the retry to send a barrier.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.errors import LakeError
from perago.lake.base import Lake
from perago.protocol.names import claim_branch_name, staging_prefix, workdir_name
from perago.protocol.steps import step_named
from perago.runtime.ending import Claim
from perago.runtime.own_branches import drop_quietly
from perago.runtime.root.workdirs import remove_workdir
from perago.runtime.worker.slot import Execution

log = logging.getLogger("perago.dead_executor")


@dataclass(frozen=True, slots=True)
class DeadExecutorCleanup:
    """Removes what executions have left in a root and in a lake."""

    root: Path
    lake: Lake

    def clean(self, execution: Execution, claim: Claim | None = None) -> None:
        """Remove all that an execution of a dead process left; `claim` where its attempt is over."""
        self.remove_workdir(execution)
        self._drop_staging(execution)
        self.drop_claim(claim)

    def remove_workdir(self, execution: Execution) -> None:
        """Remove the folder of an execution whose process is dead."""
        try:
            remove_workdir(self.root, workdir_name(execution.attempt.task_id, execution.id))
        except OSError as error:
            log.warning("failed to clean workdir of execution %s: %s", execution.id, error)

    def drop_claim(self, claim: Claim | None) -> None:
        """Drop the claim of an attempt that is over."""
        if claim is not None:
            drop_quietly(self.lake, claim.repository, claim.branch)

    def _drop_staging(self, execution: Execution) -> None:
        repository = _given(execution.assignment.input, "repository")
        may_have = execution.unsure or step_named(execution.step).may_have_staging
        if repository is None or not may_have:
            return
        try:
            prefix = staging_prefix(execution.attempt, execution.id)
            for branch in self.lake.branches(repository, prefix):
                drop_quietly(self.lake, repository, branch.name)
        except LakeError as error:
            log.warning("failed to clean staging workspace of execution %s: %s", execution.id, error)


def claim_of(execution: Execution) -> Claim | None:
    """The claim that a dead execution may hold and that may go once its attempt is over."""
    repository = _given(execution.assignment.input, "repository")
    branch = _given(execution.assignment.input, "branch")
    # Who was not heard to the end may have begun to publish.
    free = not execution.unsure and step_named(execution.step).may_give_up_claim
    if repository is None or branch is None or not free:
        return None
    return Claim(repository, claim_branch_name(execution.attempt, branch))


def _given(payload: Mapping[str, Any], field: str) -> str | None:
    workspace = payload.get("workspace")
    if isinstance(workspace, list) and workspace:
        # What is joined is of one repository and branch.
        workspace = workspace[0]
    value = workspace.get(field) if isinstance(workspace, Mapping) else None
    return value if isinstance(value, str) else None
