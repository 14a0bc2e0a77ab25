"""Names of Perago's own branches, tags and folders.

lakeFS takes letters, digits, `-` and `_` in a branch name.  A part that has anything else, or that could be
taken for another part, becomes a readable slug with a digest, so two different executions never share a name:

    workflow, task id   kept when made of letters, digits and `-` (a UUID is) and free of the words below
    reference           kept when made of letters, digits and `_`
    branch              kept when it is one that lakeFS takes and not too long
    anything else       <slug with `_`>-x<10 hex of its SHA-256>

    perago-staging-<workflow>-<reference>-seq-<n>-iteration-<n>-task-id-<id>-retry-<n>-exec-<execution>
                                                                        [-at-<scheduled time>][-on-<12 of H>]
    perago-staging-<workflow>-<reference>-claim-task-id-<id>[-at-<scheduled time>]-into-<branch>
    perago-replaced-<task id>-<12 of H>                                   (a tag)
    perago-fence-<seconds since the epoch>-<12 hex>                       (a branch for a proof, gone in a moment)
    perago-put-<seconds since the epoch>-<12 hex>                         (a branch that `perago put` stages on)
    perago-workdir-<task id>-<execution>                                  (a folder below the workspace root)

An execution is 16 hex digits; r<n> follows where an engine runs it again by itself.

One listing finds the stagings and claims of a step.  Earlier versions made stagings without a scheduled time, and
claims named `perago-claim-<workflow>-<reference>-task-id-<id>[-at-<scheduled time>]`:
only the sweep still looks for those.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perago.protocol.attempt import Attempt

STAGING = "perago-staging-"
OLD_CLAIM = "perago-claim-"
REPLACED = "perago-replaced-"
PROOF = "perago-fence-"
PUT = "perago-put-"
SHORT = 12

_LONGEST_PART = 80
_WORDS = re.compile(r"-(seq|iteration|task-id|retry|exec|on|at|claim|into)(-|$)")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_REFERENCE = re.compile(r"[A-Za-z0-9_]+")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_DIGEST = r"-x[0-9a-f]{10}"
_SLUG = re.compile(rf"_[A-Za-z0-9_]*{_DIGEST}")
_ID_PART = rf"(?:[A-Za-z0-9][A-Za-z0-9-]*?|[A-Za-z0-9_]+{_DIGEST})"
_STEP_PART = rf"(?P<workflow>{_ID_PART})-(?P<reference>[A-Za-z0-9_]+(?:{_DIGEST})?)"
_AT = r"(?:-at-(?P<at>\d+))?"
_ON = rf"(?:-on-[0-9a-f]{{{SHORT}}})?"
_REST = (
    rf"seq-\d+-iteration-\d+-task-id-(?P<staging_task>{_ID_PART})-retry-\d+-exec-[A-Za-z0-9]+{_AT}{_ON}",
    rf"claim-task-id-(?P<claim_task>{_ID_PART}){_AT}-into-(?P<into>{_BRANCH.pattern})",
    rf"task-id-(?P<claim_task>{_ID_PART}){_AT}",
)
_DATED = re.compile(rf"(?:{PROOF}|{PUT})(\d{{9,12}})-[0-9a-f]{{12}}")
_PREFIXES = (STAGING, STAGING, OLD_CLAIM)
_FORMS = tuple(
    re.compile(f"{prefix}{_STEP_PART}-{rest}") for prefix, rest in zip(_PREFIXES, _REST, strict=True)
)


@dataclass(frozen=True, slots=True)
class InternalBranch:
    """What the name of a staging or claim branch tells: ids are as Conductor gave them, or slugs.

    `scheduled_time` is 0, and `into` empty, where the name does not tell.
    """

    kind: Literal["staging", "claim"]
    workflow: str
    reference: str
    task_id: str
    scheduled_time: int = 0
    into: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """What an attempt takes away from the other attempts of its step: stagings first, claims last."""

    stagings: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    not_earlier: tuple[InternalBranch, ...] = ()
    """One branch of each of these attempts that was, by its name, not scheduled before this one."""

    def __bool__(self) -> bool:
        return bool(self.stagings or self.claims)


def staging_branch_name(attempt: Attempt, execution_id: str, *, on: str | None = None) -> str:
    """The branch one execution stages on; `on` is the head it is staged again on."""
    name = f"{staging_prefix(attempt, execution_id)}{_at(attempt)}"
    return f"{name}-on-{on[:SHORT]}" if on else name


def staging_prefix(attempt: Attempt, execution_id: str) -> str:
    """What the names of all branches begin with that one execution, or a re-run of it, stages on."""
    return (
        f"{STAGING}{_step(attempt)}-seq-{attempt.seq}-iteration-{attempt.iteration}"
        f"-task-id-{_id(attempt.task_id)}-retry-{attempt.retry_count}-exec-{execution_id}"
    )


def rerun_id(execution_id: str, number: int) -> str:
    """The id under which an engine's re-run of an execution works: names of its own, which begin like the first one's."""
    return f"{execution_id}r{number}" if number else execution_id


def claim_branch_name(attempt: Attempt, target: str) -> str:
    """The branch whose creation makes one execution the attempt's only publisher on `target`.

    The scheduled time is part of it, because Conductor's `rerun` keeps the task id.  The target is, so that whoever
    finds the claim knows where a publish request may still be in flight.
    """
    return f"{STAGING}{_step(attempt)}-claim-task-id-{_id(attempt.task_id)}{_at(attempt)}-into-{branch_part(target)}"


def branch_part(branch: str) -> str:
    """A target branch as a claim names it."""
    kept = _BRANCH.fullmatch(branch) and not _SLUG.fullmatch(branch) and len(branch) <= _LONGEST_PART
    return branch if kept else _slug(branch)


def is_slug(part: str) -> bool:
    """Whether a part of a name stands for something that could not be kept as it is."""
    return _SLUG.fullmatch(part) is not None


def replaced_tag_name(attempt: Attempt, head: str) -> str:
    """The tag that keeps a head which this attempt replaces."""
    return f"{REPLACED}{_id(attempt.task_id)}-{head[:SHORT]}"


WORKDIR = "perago-workdir-"
MAKING = ".perago-making-"
REMOVING = ".perago-removing-"
_WORKDIR = re.compile(
    rf"(?P<ours>{WORKDIR}|{re.escape(MAKING)}|{re.escape(REMOVING)})?{_ID_PART}-(?P<execution>[0-9a-f]{{16}}(?:r\d+)?)"
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


def proof_branch_name(now: float, token: str) -> str:
    """A branch on which the fence is installed or proven; the time tells a sweep which ones a kill left behind."""
    return f"{PROOF}{int(now)}-{token}"


def put_branch_name(now: float, token: str) -> str:
    """A branch on which `perago put` stages; dated like one for a proof."""
    return f"{PUT}{int(now)}-{token}"


def proof_branch_made(name: str) -> float | None:
    """When a branch for a proof or a put was made, or None for any other name."""
    match = _DATED.fullmatch(name)
    return float(match[1]) if match else None


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


def revoke_prefix(attempt: Attempt) -> str:
    """What the names of this step's staging and claim branches start with."""
    return f"{STAGING}{_step(attempt)}-"


def revoked_by(attempt: Attempt, names: Iterable[str]) -> Revoked:
    """The branches of this step's other attempts: all of these are over if this attempt is current.

    Whether it is current, the names cannot tell, and neither can the times in them: the caller asks the orchestrator, or
    a worker that slept since its poll would revoke the attempt that took its place.
    """
    found: dict[str, list[str]] = {"staging": [], "claim": []}
    not_earlier: dict[tuple[str, int], InternalBranch] = {}
    for name in names:
        branch = parse_internal_branch(name)
        if branch is None or _step_of(branch) != _step(attempt) or _is_of(branch, attempt):
            continue
        found[branch.kind].append(name)
        if branch.scheduled_time >= attempt.scheduled_time:
            not_earlier[branch.task_id, branch.scheduled_time] = branch
    return Revoked(tuple(found["staging"]), tuple(found["claim"]), tuple(not_earlier.values()))


def _is_of(branch: InternalBranch, attempt: Attempt) -> bool:
    """Whether a branch may be this very attempt's; Conductor's `rerun` keeps the task id, not the scheduled time."""
    times = {branch.scheduled_time, attempt.scheduled_time}
    return branch.task_id == _id(attempt.task_id) and (len(times) == 1 or 0 in times)


def parse_internal_branch(name: str) -> InternalBranch | None:
    """The owner of a staging or claim branch, or None for any other name."""
    for form in _FORMS:
        if (match := form.fullmatch(name)) is not None:
            found = match.groupdict()
            kind: Literal["staging", "claim"] = "staging" if "staging_task" in found else "claim"
            return InternalBranch(
                kind=kind,
                workflow=found["workflow"],
                reference=found["reference"],
                task_id=found[f"{kind}_task"],
                scheduled_time=int(found["at"] or 0),
                into=found.get("into") or "",
            )
    return None


def _step(attempt: Attempt) -> str:
    return f"{_id(attempt.workflow_instance_id)}-{_reference(attempt.reference_task_name)}"


def _step_of(branch: InternalBranch) -> str:
    return f"{branch.workflow}-{branch.reference}"


def _at(attempt: Attempt) -> str:
    return f"-at-{attempt.scheduled_time}" if attempt.scheduled_time else ""


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
