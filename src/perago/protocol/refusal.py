"""The reason why a publication is refused: who moved the branch, what to do, and the details.

The rule: a reason begins with its cause and the next step.  Everything after `DETAILS` may be cut off, because Conductor
keeps only the first 500 characters of a reason (`outcome.shorten`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perago.protocol.attempt import Attempt
from perago.protocol.metadata import INPUT_REF, KEY, TASK_ID
from perago.protocol.names import SHORT
from perago.protocol.policies import POLICIES, REBASES, SUPERSEDE, PolicyName, declaration_text

if TYPE_CHECKING:
    from perago.protocol.publication import Commit, HeadState, TargetBranch, Workspace

DETAILS = " Details: "
RETRY_IS_USELESS = "retrying is useless"
"""A reason with this text says that every retry of the attempt would fail in the same way."""
USELESS = f"No later head could let this attempt publish, so {RETRY_IS_USELESS}."
BODY_NOT_RUN = f"The body was not run, since no later head could let it publish: {RETRY_IS_USELESS}."
FROM_CURRENT_HEAD = "Nothing was published. Start a new workflow from the current head."
_MESSAGE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Refusal:
    """The parts of a reason, each of them one or more sentences."""

    cause: str
    next_step: str
    details: str = ""

    def text(self) -> str:
        """Return the reason."""
        return f"{self.cause} {self.next_step}" + (f"{DETAILS}{self.details}" if self.details else "")


def with_note(reason: str, note: str) -> str:
    """Add a sentence to a reason, before its details."""
    main, mark, details = reason.partition(DETAILS)
    return f"{main} {note}{mark}{details}"


def refusal(
    attempt: Attempt, workspace: Workspace, target: TargetBranch, policy: PolicyName, state: HeadState
) -> Refusal:
    """Return the reason why an attempt may not move the branch."""
    where = f"branch {workspace.branch!r} of {workspace.repository!r}"
    if state == "gated-child":
        return Refusal(
            f"{where} is guarded by the pre-merge action {' and '.join(target.gates)}, and this attempt would have to "
            f"replace its head {target.head.id} ({made_by(target.head)}) by moving the branch, which runs no action.",
            f"Declare {declaration_text(SUPERSEDE)}, which publishes by merge. {FROM_CURRENT_HEAD}",
        )
    if state == "dirty-child":
        return Refusal(
            f"{where} has uncommitted objects, and this attempt would have to replace its head {target.head.id} "
            "by moving the branch.",
            f"Commit or reset them. {FROM_CURRENT_HEAD}",
        )
    refs = f"input ref {workspace.ref}, head {target.head.id} ({made_by(target.head)})."
    if target.reached == "limit":
        why = f"advanced beyond supported publish range ({len(target.advance)} commits)"
        return Refusal(f"{where} {why}.", FROM_CURRENT_HEAD, f"{refs}")
    if target.reached == "root":
        return Refusal(f"{where} no longer contains workspace input ref.", FROM_CURRENT_HEAD, f"{refs}")
    advanced = f"{where} was advanced by {len(target.advance)} commit(s)"
    if target.advance_effect is not None and (change := target.advance_effect.change) is not None:
        moved = moved_by(
            attempt, workspace, [change.commit], f"changed {change.path!r} (this task sees it) on"
        )
        what = f"{change.commit.id} changed {change.path!r}"
        return Refusal(moved.cause, moved.next_step, f"{moved.details}{what}; {advanced}: {refs}")
    if state == "own-range" and not POLICIES[policy].restages:
        return Refusal(
            f"{where} was advanced by {len(target.advance)} commits of this task's own step.",
            f"{declaration_text(SUPERSEDE)} would publish on top of them. {FROM_CURRENT_HEAD}",
            refs,
        )
    moved = moved_by(attempt, workspace, target.advance)
    return Refusal(
        moved.cause, moved.next_step, f"{moved.details}{advanced} that this attempt may not cover: {refs}"
    )


def moved_by(
    attempt: Attempt, workspace: Workspace, advance: Sequence[Commit], did: str = "moved"
) -> Refusal:
    """Return who moved the branch since the input commit, and what to do about it."""
    workflow = attempt.workflow_instance_id
    where = f"branch {workspace.branch!r} of {workspace.repository!r}"
    foreign = [commit for commit in advance if commit.metadata.get(KEY) != attempt.logical_task_key]
    for commit in foreign:
        made_in, _, reference = commit.metadata.get(KEY, "").partition("/")
        if made_in == workflow and reference:
            return Refusal(
                f"step {reference!r} of this same workflow {did} {where} {_when(commit)}.",
                "Two steps of one workflow write it side by side, or from the same input. Put one after the other, the "
                f"second with ${{{reference}.output.workspace}} as its workspace, or give each a branch of its own. Start a "
                "new workflow from the current head.",
                "nothing was published. Steps that see nothing of what the other writes may declare so, with reads, "
                f"writes and {REBASES}. ",
            )
        if reference == attempt.reference_task_name and commit.metadata.get(INPUT_REF) == workspace.ref:
            return Refusal(
                f"step {reference!r} of workflow {made_in} {did} {where} {_when(commit)}.",
                "It began at this same input, so this looks like a second run of the same work, such as a retried "
                "SUB_WORKFLOW: it may not cover what the first one published. Start a new workflow, of the parent if there "
                "is one, from the current head.",
                "nothing was published. ",
            )
    commit = (foreign or advance)[0]
    return Refusal(f"{_maker(commit)} {did} {where} {_when(commit)}{_said(commit)}.", FROM_CURRENT_HEAD)


def made_by(commit: Commit) -> str:
    """Return a phrase that says who made a commit, for use in messages."""
    key = commit.metadata.get(KEY)
    if key:
        return f"made by Perago task {key}, attempt {commit.metadata.get(TASK_ID, '?')}"
    return f"not made by Perago: {commit.message!r}" if commit.message else "not made by Perago"


def describe_unsigned(commit: Commit) -> str:
    """Return a phrase that identifies a commit that no task signed: its id, its author, its time and its message."""
    by = f" by {commit.committer!r}" if commit.committer else ""
    return f"{commit.id[:SHORT]}{by}, made at {_moment(commit)}{_said(commit)}"


def _when(commit: Commit) -> str:
    return f"at {_moment(commit)} (commit {commit.id[:SHORT]})"


def _maker(commit: Commit) -> str:
    workflow, slash, reference = commit.metadata.get(KEY, "").partition("/")
    if slash:
        return f"step {reference!r} of workflow {workflow}"
    if workflow:
        return f"`{workflow.replace('-', ' ', 1)}`"
    return f"{commit.committer!r}, not a Perago task," if commit.committer else "somebody, not a Perago task,"


def _said(commit: Commit) -> str:
    """Return the message of a commit that no step signed.  A step's message repeats what its signature says."""
    line = commit.message.strip().partition("\n")[0]
    if not line or "/" in commit.metadata.get(KEY, ""):
        return ""
    return f", with the message {line if len(line) <= _MESSAGE_CHARS else line[: _MESSAGE_CHARS - 1] + '…'!r}"


def _moment(commit: Commit) -> str:
    # lakeFS takes any number from whoever commits.
    with suppress(ValueError, OverflowError, OSError):
        if commit.created:
            return datetime.fromtimestamp(commit.created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return "an unknown time"
