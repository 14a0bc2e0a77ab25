"""Names of Perago's own branches, tags and folders.

lakeFS takes letters, digits, `-` and `_` in a branch name.  A part that has anything else, or that could be
taken for another part, becomes a readable slug with a digest, so two different executions never share a name:

    workflow, task id   kept when made of letters, digits and `-` (a UUID is) and free of the words below
    reference           kept when made of letters, digits and `_`
    anything else       <slug with `_`>-x<10 hex of its SHA-256>

    perago-staging-<workflow>-<reference>-seq-<n>-iteration-<n>-task-id-<id>-retry-<n>-exec-<execution>[-on-<12 of H>]
    perago-claim-<workflow>-<reference>-task-id-<id>[-at-<scheduled time>]
    perago-replaced-<task id>-<12 of H>                                   (a tag)
    perago-workdir-<task id>-<execution>                                  (a folder below the workspace root)
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from perago.protocol.attempt import Attempt

STAGING = "perago-staging-"
CLAIM = "perago-claim-"
REPLACED = "perago-replaced-"
SHORT = 12

_LONGEST_PART = 80
_WORDS = re.compile(r"-(seq|iteration|task-id|retry|exec|on|at)(-|$)")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_REFERENCE = re.compile(r"[A-Za-z0-9_]+")
_DIGEST = r"-x[0-9a-f]{10}"
_ID_PART = rf"(?:[A-Za-z0-9][A-Za-z0-9-]*|[A-Za-z0-9_]+{_DIGEST})"
_STAGING_REST = re.compile(
    rf"\d+-iteration-\d+-task-id-(?P<task>{_ID_PART})-retry-\d+-exec-[A-Za-z0-9]+(?:-on-[0-9a-f]{{{SHORT}}})?"
)
_INTERNAL = re.compile(
    rf"(?:{STAGING}(?P<workflow>{_ID_PART})-(?P<reference>[A-Za-z0-9_]+(?:{_DIGEST})?)-seq-{_STAGING_REST.pattern}"
    rf"|{CLAIM}(?P<claim_workflow>{_ID_PART})-[A-Za-z0-9_]+(?:{_DIGEST})?-task-id-(?P<claim_task>{_ID_PART}))"
)


@dataclass(frozen=True, slots=True)
class InternalBranch:
    """What the name of a staging or claim branch tells: ids are as Conductor gave them, or slugs."""

    kind: Literal["staging", "claim"]
    workflow: str
    task_id: str


def staging_branch_name(attempt: Attempt, execution_id: str, *, on: str | None = None) -> str:
    """The branch one execution stages on; `on` is the head it is staged again on."""
    name = (
        f"{STAGING}{_step(attempt)}-seq-{attempt.seq}-iteration-{attempt.iteration}"
        f"-task-id-{_id(attempt.task_id)}-retry-{attempt.retry_count}-exec-{execution_id}"
    )
    return f"{name}-on-{on[:SHORT]}" if on else name


def claim_branch_name(attempt: Attempt) -> str:
    """The branch whose creation makes one execution the attempt's only publisher.

    The scheduled time is part of it, because Conductor's `rerun` keeps the task id.
    """
    at = f"-at-{attempt.scheduled_time}" if attempt.scheduled_time else ""
    return f"{CLAIM}{_step(attempt)}-task-id-{_id(attempt.task_id)}{at}"


def replaced_tag_name(attempt: Attempt, head: str) -> str:
    """The tag that keeps a head which this attempt replaces."""
    return f"{REPLACED}{_id(attempt.task_id)}-{head[:SHORT]}"


WORKDIR = "perago-workdir-"
MAKING = ".perago-making-"
REMOVING = ".perago-removing-"
_WORKDIR = re.compile(
    rf"(?P<ours>{WORKDIR}|{re.escape(MAKING)}|{re.escape(REMOVING)})?{_ID_PART}-(?P<execution>[0-9a-f]{{16}})"
)


@dataclass(frozen=True, slots=True)
class WorkdirName:
    """The folder of one execution below the workspace root, under the name of each part of its life.

    It is renamed from `making` to `working` when its marker is written, and to `removing` before it is emptied.
    """

    working: str
    making: str
    removing: str
    old: str
    """What earlier versions called it."""


def workdir_name(task_id: str, execution_id: str) -> WorkdirName:
    """The folder of one execution."""
    owner = f"{_id(task_id)}-{execution_id}"
    return WorkdirName(WORKDIR + owner, MAKING + owner, REMOVING + owner, owner)


def removing_name(name: str) -> str:
    """What a workdir of that name is called while it is removed."""
    return REMOVING + name.removeprefix(WORKDIR).removeprefix(MAKING).removeprefix(REMOVING)


@dataclass(frozen=True, slots=True)
class WorkdirOwner:
    """What the name of a folder tells; one that is not `certain` may be a name that people gave."""

    execution_id: str
    certain: bool


def parse_workdir_name(name: str) -> WorkdirOwner | None:
    """The owner of a workdir, or None for any other name; of old names only a marker makes certain."""
    match = _WORKDIR.fullmatch(name)
    return WorkdirOwner(match["execution"], match["ours"] is not None) if match else None


def revoke_prefixes(attempt: Attempt) -> tuple[str, str]:
    """What the names of this logical task's staging and claim branches start with."""
    return f"{STAGING}{_step(attempt)}-seq-", f"{CLAIM}{_step(attempt)}-task-id-"


def is_revoked_by(attempt: Attempt, name: str) -> bool:
    """Whether a branch belongs to this logical task but to another attempt.

    In one workflow step only one attempt is ever current, so such a branch belongs to the dead.  Never go by
    retry count: Conductor's `restart` resets it.
    """
    staging, claim = revoke_prefixes(attempt)
    own = _id(attempt.task_id)
    if name.startswith(claim):
        return name != claim_branch_name(attempt)
    rest = _STAGING_REST.fullmatch(name.removeprefix(staging)) if name.startswith(staging) else None
    return rest is not None and rest["task"] != own


def parse_internal_branch(name: str) -> InternalBranch | None:
    """The owner of a staging or claim branch, or None for any other name."""
    match = _INTERNAL.fullmatch(name)
    if match is None:
        return None
    if match["task"] is not None:
        return InternalBranch("staging", match["workflow"], match["task"])
    return InternalBranch("claim", match["claim_workflow"], match["claim_task"].partition("-at-")[0])


def _step(attempt: Attempt) -> str:
    return f"{_id(attempt.workflow_instance_id)}-{_reference(attempt.reference_task_name)}"


def _id(value: str) -> str:
    kept = _ID.fullmatch(value) and not _WORDS.search(value) and len(value) <= _LONGEST_PART
    return value if kept else _slug(value)


def _reference(value: str) -> str:
    kept = _REFERENCE.fullmatch(value) and len(value) <= _LONGEST_PART
    return value if kept else _slug(value)


def _slug(value: str) -> str:
    """A readable stand-in; the underscore in front tells it from every kept id, the digest from every other."""
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return "_" + re.sub(r"[^A-Za-z0-9]+", "_", value)[:40].strip("_") + "-x" + digest
