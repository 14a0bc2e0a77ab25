"""The look before the body: whether any later head could still let an attempt publish.

The look permits nothing.  It only ends an attempt that the table would refuse whatever happens to the branch while
the body runs, so that a body does not run in vain.  docs/decisions/0010 has the argument; in short:

    a branch grows, or a relocation takes its head off, nothing else: a commit leaves after all those above it
    a commit is taken off by an attempt of the step that signed it (not signed: by any attempt that began at its parent)
    so a commit stays when its signer is no step, is a step whose task was accepted, or is this step and the commit is
    not what this attempt would relocate; and what is below a commit that stays, stays

    replace              hopeless if a commit stays
    supersede, reuse     hopeless if a commit stays that is not this step's own, or if those that stay are too many
    with rebase          hopeless if a commit that stays has changed the view, own commits aside, or those that stay are too
                         many; that somebody changes it back to what it was is left out (docs/decisions/0016)
    all                  hopeless if A is not in the branch's history
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
    """Why no later head could let this attempt publish, or None; `accepted` are ids of tasks that completed.

    For a task that rebases, `target` says what was passed among the commits that stay (`permanent_commits`).
    """
    if target.head.id == workspace.ref:
        return None
    staying = _staying(attempt, workspace.ref, target.advance, policy, accepted)
    if rebases:
        changed = target.passed is not None and target.passed.change is not None
        lost = changed or (target.reached == "limit" and len(staying) == len(target.advance))
    elif not POLICIES[policy].restages:
        lost = bool(staying)
    else:
        too_many = target.reached == "limit" and len(staying) == len(target.advance)
        lost = too_many or any(_signer(commit) != attempt.logical_task_key for commit in staying)
    if lost or target.reached == "root":
        return refusal(attempt, workspace, target, policy)
    return None


def permanent_commits(
    attempt: Attempt, workspace: Workspace, target: TargetBranch, policy: PolicyName, accepted: Container[str]
) -> TargetBranch | None:
    """The branch at the newest commit that can leave it no more; None where all of them may."""
    staying = _staying(attempt, workspace.ref, target.advance, policy, accepted)
    return TargetBranch(staying[0], staying, target.reached) if staying else None


def foreign_maker(attempt: Attempt, target: TargetBranch) -> Commit | None:
    """The newest commit that another workflow step made: if its task was accepted, it stays."""
    signed = (commit for commit in target.advance if commit.metadata.get(TASK_ID))
    return next((commit for commit in signed if _signer(commit) != attempt.logical_task_key), None)


def _staying(
    attempt: Attempt, input_ref: str, advance: Sequence[Commit], policy: PolicyName, accepted: Container[str]
) -> Sequence[Commit]:
    """The commits that can leave the branch no more, newest first: the newest that stays, and all below it."""
    for place, commit in enumerate(advance):
        signer = _signer(commit)
        if signer == attempt.logical_task_key:
            stays = not POLICIES[policy].relocates or commit.first_parent != input_ref
        else:
            nobodys = bool(signer) and "/" not in signer
            stays = nobodys or commit.metadata.get(TASK_ID, "") in accepted
        if stays:
            return advance[place:]
    return ()


def _signer(commit: Commit) -> str:
    return commit.metadata.get(KEY, "")
