"""Preflight: decides, before the body runs, whether there is still any way for the attempt to publish.

Preflight never permits a publication.  It only ends an attempt that the publication table would refuse whatever
happens to the branch while the body runs, so that no body does useless work.  docs/decisions/0010 has the full
argument.  In short:

    A branch either grows, or a relocation removes its head.  So a commit can only be removed after all those above it.
    A commit is only removed by an attempt of the step that signed it.  An unsigned commit can be removed by any attempt
    that started from its parent and takes it for an abandoned publication.
    So a commit is permanent if its signer is not a step, if its signer is a step whose task was accepted, or if its
    signer is this step and the commit is not the one that this attempt would relocate.  For an attempt that does not
    replace unsigned commits, an unsigned commit is permanent too: the possibility that another task removes it is
    ignored (docs/decisions/0041).  Everything below a permanent commit is permanent too.

    replace              refuse if there is a permanent commit
    supersede, reuse     refuse if a permanent commit is not this step's own, or if there are too many permanent commits
    with rebase          refuse if a permanent commit other than this step's own has changed the view, or if there are
                         too many permanent commits; the possibility that somebody undoes the change is ignored
                         (docs/decisions/0016)
    all                  refuse if the input commit is not in the branch's history
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from perago.protocol.attempt import Attempt
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.policies import POLICIES, PolicyName
from perago.protocol.publication import Commit, TargetBranch, Workspace, head_state
from perago.protocol.refusal import refusal


def cannot_ever_publish(
    attempt: Attempt,
    workspace: Workspace,
    target: TargetBranch,
    policy: PolicyName,
    *,
    accepted: Container[str] = (),
    rebases: bool = False,
) -> str | None:
    """Return the reason why this attempt can never publish, whatever happens to the branch, or None.

    `accepted` contains the ids of completed tasks.  For a task that rebases, `target.advance_effect` describes the
    permanent commits (`permanent_commits`).
    """
    if target.head.id == workspace.ref:
        return None
    staying = _permanent_commits(attempt, workspace.ref, target.advance, policy, accepted)
    if rebases:
        changed = target.advance_effect is not None and target.advance_effect.change is not None
        refused = changed or (target.reached == "limit" and len(staying) == len(target.advance))
    elif not POLICIES[policy].restages:
        refused = bool(staying)
    else:
        too_many = target.reached == "limit" and len(staying) == len(target.advance)
        refused = too_many or any(_signer(commit) != attempt.logical_task_key for commit in staying)
    if refused or target.reached == "root":
        return refusal(
            attempt, workspace, target, policy, head_state(attempt, workspace.ref, target, policy)
        ).text()
    return None


def permanent_commits(
    attempt: Attempt, workspace: Workspace, target: TargetBranch, policy: PolicyName, accepted: Container[str]
) -> TargetBranch | None:
    """Return the branch as it was at its newest permanent commit: its head, and the commits below that.

    A commit is permanent if no attempt can remove it any more.  Returns None if there is no such commit.
    """
    staying = _permanent_commits(attempt, workspace.ref, target.advance, policy, accepted)
    return TargetBranch(staying[0], staying, target.reached) if staying else None


def newest_foreign_commit(attempt: Attempt, target: TargetBranch) -> Commit | None:
    """Return the newest commit made by another workflow step, or None.

    Such a commit is permanent if Conductor has accepted its task.
    """
    signed = (commit for commit in target.advance if commit.metadata.get(TASK_ID))
    return next((commit for commit in signed if _signer(commit) != attempt.logical_task_key), None)


def _permanent_commits(
    attempt: Attempt, input_ref: str, advance: Sequence[Commit], policy: PolicyName, accepted: Container[str]
) -> Sequence[Commit]:
    """Return the commits that can no longer be removed, newest first: the newest permanent one and all below it."""
    for place, commit in enumerate(advance):
        signer = _signer(commit)
        if signer == attempt.logical_task_key:
            stays = not POLICIES[policy].relocates or commit.first_parent != input_ref
        elif not signer:
            stays = not POLICIES[policy].replaces_unsigned
        else:
            not_a_step = "/" not in signer
            stays = not_a_step or commit.metadata.get(TASK_ID, "") in accepted
        if stays:
            return advance[place:]
    return ()


def _signer(commit: Commit) -> str:
    return commit.metadata.get(KEY, "")
