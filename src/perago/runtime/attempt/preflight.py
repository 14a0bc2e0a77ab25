"""The look at the target branch before the body (protocol/look decides; docs/decisions/0010).

Not taken where the head was A when the input was read.  Else one call as a rule: the head.  Only where it shows commits that
may keep the attempt from ever publishing are the log and the orchestrator asked.  The look permits nothing, so where it
cannot be taken the attempt goes on.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from perago.errors import LakeError, LakeNotFound, OrchestratorError
from perago.lake.base import Lake
from perago.orchestrator.base import AttemptReporter
from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.preflight import cannot_ever_publish, foreign_maker, permanent_commits
from perago.protocol.publication import TargetBranch, Workspace
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.target_branch import read_history

log = logging.getLogger("perago.look")


def look_at(lake: Lake, workspace: Workspace) -> TargetBranch | None:
    """The branch as it is now, or None where it cannot be read; a branch that is not there ends the attempt."""
    try:
        return read_history(lake, workspace)
    except LakeNotFound as error:
        raise LakeNotFound(
            f"branch {workspace.branch!r} of repository {workspace.repository!r} is not there ({error}): correct "
            "workspace.branch in the workflow's input, or create the branch"
        ) from error
    except LakeError as error:
        log.info("the head cannot be read before the body: %s", error)
        return None


def preflight_failure(
    publisher: Publisher, target: TargetBranch | None, orchestrator: AttemptReporter
) -> str | None:
    """Why no later head could let this attempt publish, or None."""
    attempt, workspace = publisher.signature.attempt, publisher.signature.workspace
    if target is None or target.head.id == workspace.ref:
        return None
    accepted = _accepted(orchestrator, attempt, target)
    if publisher.rebases:
        target = _passed(publisher, target, accepted)
    return cannot_ever_publish(
        attempt, workspace, target, publisher.policy, accepted=accepted, rebases=publisher.rebases
    )


def _passed(publisher: Publisher, target: TargetBranch, accepted: frozenset[str]) -> TargetBranch:
    """The branch with what was passed among the commits that stay; as it is where that cannot be told."""
    attempt, workspace = publisher.signature.attempt, publisher.signature.workspace
    kept = permanent_commits(attempt, workspace, target, publisher.policy, accepted)
    if kept is None:
        return target
    try:
        return replace(target, passed=publisher.views.passed(attempt, kept).passed)
    except LakeError as error:
        log.info("what others have changed cannot be told before the body: %s", error)
        return target


def _accepted(orchestrator: AttemptReporter, attempt: Attempt, target: TargetBranch) -> frozenset[str]:
    """The task of the newest commit that another step made, where it is COMPLETED: that step runs no more."""
    commit = foreign_maker(attempt, target)
    if commit is None:
        return frozenset()
    workflow, _, reference = commit.metadata.get(KEY, "").partition("/")
    maker = Attempt(workflow, commit.metadata[TASK_ID], reference, "", retry_count=0, seq=0, iteration=0)
    try:
        status = orchestrator.current(maker).status
    except OrchestratorError as error:
        log.info("the maker of %s cannot be asked for: %s", commit.id, error)
        return frozenset()
    return frozenset({maker.task_id}) if status == "COMPLETED" else frozenset()
