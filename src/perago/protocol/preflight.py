"""Preflight: decides before the body whether any later head could still let an attempt publish.

Preflight permits nothing.  It only ends an attempt that the table would refuse whatever happens to the branch while the
body runs, so that no body runs for nothing.  docs/decisions/0010 has the argument; in short:

    a branch only grows, or a relocation removes its head: a commit is removed after all those above it
    a commit is removed by an attempt of the step that signed it (unsigned: by any attempt that started at its parent)
    so a commit stays if its signer is not a step, or a step whose task was accepted, or this step and the commit is not
    what this attempt would relocate; and everything below a commit that stays, stays

    replace              refuse if a commit stays
    supersede, reuse     refuse if a commit stays that is not this step's own, or if those that stay are too many
    with rebase          refuse if a commit that stays has changed the view, own commits aside, or those that stay are too
                         many; that somebody may change it back is ignored (docs/decisions/0016)
    all                  refuse if A is not in the branch's history
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.publication import Commit, TargetBranch, Workspace, refusal


def cannot_ever_publish(
    attempt: Attempt,
    workspace: Workspace,
    target: TargetBranch,
    policy: PolicyName,
    *,
    accepted: Container[str] = (),
    rebases: bool = False,
) -> str | None:
    """Return why no later head could let this attempt publish, or None; `accepted` are ids of completed tasks.

    For a task that rebases, `target.passed` covers the commits that stay (`permanent_commits`).
    """
    if target.head.id == workspace.ref:
        return None
    staying = _permanent_commits(attempt, workspace.ref, target.advance, policy, accepted)
    if rebases:
        changed = target.passed is not None and target.passed.change is not None
        refused = changed or (target.reached == "limit" and len(staying) == len(target.advance))
    elif not POLICIES[policy].restages:
        refused = bool(staying)
    else:
        too_many = target.reached == "limit" and len(staying) == len(target.advance)
        refused = too_many or any(_signer(commit) != attempt.logical_task_key for commit in staying)
    if refused or target.reached == "root":
        return refusal(attempt, workspace, target, policy)
    return None


def permanent_commits(
    attempt: Attempt, workspace: Workspace, target: TargetBranch, policy: PolicyName, accepted: Container[str]
) -> TargetBranch | None:
    """Return the branch as of the newest commit that can no longer be removed, or None if all can."""
    staying = _permanent_commits(attempt, workspace.ref, target.advance, policy, accepted)
    return TargetBranch(staying[0], staying, target.reached) if staying else None


def foreign_maker(attempt: Attempt, target: TargetBranch) -> Commit | None:
    """Return the newest commit that another workflow step made, or None; it stays if its task was accepted."""
    signed = (commit for commit in target.advance if commit.metadata.get(TASK_ID))
    return next((commit for commit in signed if _signer(commit) != attempt.logical_task_key), None)


def _permanent_commits(
    attempt: Attempt, input_ref: str, advance: Sequence[Commit], policy: PolicyName, accepted: Container[str]
) -> Sequence[Commit]:
    """Return the commits that can no longer be removed, newest first: the newest that stays, and all below it."""
    for place, commit in enumerate(advance):
        signer = _signer(commit)
        if signer == attempt.logical_task_key:
            stays = not POLICIES[policy].relocates or commit.first_parent != input_ref
        else:
            not_a_step = bool(signer) and "/" not in signer
            stays = not_a_step or commit.metadata.get(TASK_ID, "") in accepted
        if stays:
            return advance[place:]
    return ()


def _signer(commit: Commit) -> str:
    return commit.metadata.get(KEY, "")
