"""Preflight: inspects the target branch before the body runs.

`protocol/preflight` makes the decision (docs/decisions/0010).

Preflight is skipped if the input commit was the head when the input was read.  Otherwise it usually costs one call, to
read the head.  The log and the orchestrator are queried only if the head shows commits that might keep the attempt from
ever publishing.  No publication relies on preflight, which only rejects early, so the attempt continues if the lake
or the orchestrator cannot be queried.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from perago.errors import LakeError, LakeNotFound, OrchestratorError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import AttemptReporter
from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.names import is_run_branch
from perago.protocol.preflight import cannot_ever_publish, newest_foreign_commit, permanent_commits
from perago.protocol.publication import TargetBranch, Workspace
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.attempt.target_branch import read_history

log = logging.getLogger("perago.look")


def read_before_body(lake: ReadableLake, workspace: Workspace) -> TargetBranch | None:
    """Return the current state of the branch, or None if it cannot be read.

    Raises `LakeNotFound` if the branch does not exist.
    """
    try:
        return read_history(lake, workspace)
    except LakeNotFound as error:
        raise missing_branch(workspace.repository, workspace.branch, error) from error
    except LakeError as error:
        log.info("could not read the head before the body, skipping preflight: %s", error)
        return None


def missing_branch(repository: str, branch: str, error: LakeNotFound) -> LakeNotFound:
    """Return the error for an input whose branch does not exist, with its remedy."""
    where = f"branch {branch!r} of repository {repository!r}"
    if is_run_branch(branch):
        return LakeNotFound(
            f"the run branch is gone: {where} does not exist. Nothing was published. Start a new workflow ({error})"
        )
    return LakeNotFound(
        f"{where} does not exist ({error}): correct workspace.branch in the workflow's input, or create the branch"
    )


def preflight_failure(
    publisher: Publisher, target: TargetBranch | None, orchestrator: AttemptReporter
) -> str | None:
    """Return why this attempt can never publish, wherever the head moves.  Returns None if it might still publish."""
    attempt, workspace = publisher.signature.attempt, publisher.signature.workspace
    if target is None or target.head.id == workspace.ref:
        return None
    accepted = _completed_task_of_other_step(orchestrator, attempt, target)
    if publisher.rebases:
        target = _with_advance_effect(publisher, target, accepted)
    return cannot_ever_publish(
        attempt, workspace, target, publisher.policy, accepted=accepted, rebases=publisher.rebases
    )


def _with_advance_effect(
    publisher: Publisher, target: TargetBranch, accepted: frozenset[str]
) -> TargetBranch:
    """Return the branch with `advance_effect` set: how others' permanent commits affect this attempt.

    Returns the branch unchanged if that is unknown.
    """
    attempt, workspace = publisher.signature.attempt, publisher.signature.workspace
    kept = permanent_commits(attempt, workspace, target, publisher.policy, accepted)
    if kept is None:
        return target
    try:
        return replace(
            target, advance_effect=publisher.views.with_advance_effect(attempt, kept).advance_effect
        )
    except LakeError as error:
        log.info("could not check for concurrent changes before the body: %s", error)
        return target


def _completed_task_of_other_step(
    orchestrator: AttemptReporter, attempt: Attempt, target: TargetBranch
) -> frozenset[str]:
    """Return a set with the id of the task that made the newest commit by another step.

    The set is empty unless that task is COMPLETED and therefore will never run again.
    """
    commit = newest_foreign_commit(attempt, target)
    if commit is None:
        return frozenset()
    workflow, _, reference = commit.metadata.get(KEY, "").partition("/")
    maker = Attempt(workflow, commit.metadata[TASK_ID], reference, "", retry_count=0, seq=0, iteration=0)
    try:
        status = orchestrator.current(maker).status
    except OrchestratorError as error:
        log.info("could not look up the task that made %s: %s", commit.id, error)
        return frozenset()
    return frozenset({maker.task_id}) if status == "COMPLETED" else frozenset()
