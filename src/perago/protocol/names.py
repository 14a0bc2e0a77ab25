"""Names of Perago's internal branches, tags and folders.

lakeFS allows letters, digits, `-` and `_` in a branch name.  A part that contains any other character, or that could be
mistaken for another part, is replaced with a readable slug and a digest, so that two executions never share a name:

    workflow, task id   unchanged if made of letters, digits and `-` (as a UUID is) and free of the words below
    reference           unchanged if made of letters, digits and `_`
    branch              unchanged if lakeFS allows it and it is not too long
    anything else       <slug with `_`>-x<10 hex digits of its SHA-256>

    perago-staging-<workflow>-<reference>-seq-<n>-iteration-<n>-task-id-<id>-retry-<n>-exec-<execution>
                                                                        [-at-<scheduled time>][-on-<12 of H>]
    perago-staging-<workflow>-<reference>-claim-task-id-<id>[-at-<scheduled time>]-into-<branch>
    perago-replaced-<task id>-<12 of H>                                   (a tag)
    perago-fence-<seconds since the epoch>-<12 hex>                       (a short-lived branch for a fence probe)
    perago-put-<seconds since the epoch>-<12 hex>                (where `put`, `merge`, `restore` and `reproduce` work)
    perago-run-reproduce-<12 hex>                                (where `reproduce` works on a step of a run)
    perago-run-<workflow>-<12 hex of the SHA-256 of the open task and its scheduled time>     (a run branch)
    perago-published-<workflow>-<12 of R>                      (a tag that keeps the commits of a published run)
    perago-workdir-<task id>-<execution>                                  (a folder below the workspace root)

An execution id is 16 hex digits, followed by r<n> if a cluster, such as Spark's, runs the execution again.

One listing finds all staging and claim branches of a step.  Earlier versions created staging branches without a
scheduled time, and claims named `perago-claim-<workflow>-<reference>-task-id-<id>[-at-<scheduled time>]`.  Only the
sweep still looks for those claims.
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
PROBE = "perago-fence-"
PUT = "perago-put-"
RUN = "perago-run-"
PUBLISHED = "perago-published-"
SHORT = 12
WORKDIR = "perago-workdir-"
MAKING = ".perago-making-"
REMOVING = ".perago-removing-"

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
_DATED = re.compile(rf"(?:{PROBE}|{PUT})(\d{{9,12}})-[0-9a-f]{{12}}")
_RUN = re.compile(rf"{RUN}(?P<workflow>{_ID_PART})-[0-9a-f]{{{SHORT}}}")
_WORKDIR = re.compile(
    rf"(?P<ours>{WORKDIR}|{re.escape(MAKING)}|{re.escape(REMOVING)})?{_ID_PART}-(?P<execution>[0-9a-f]{{16}}(?:r\d+)?)"
)
_PREFIXES = (STAGING, STAGING, OLD_CLAIM)
_FORMS = tuple(
    re.compile(f"{prefix}{_STEP_PART}-{rest}") for prefix, rest in zip(_PREFIXES, _REST, strict=True)
)


@dataclass(frozen=True, slots=True)
class InternalBranch:
    """The parsed name of a staging or claim branch.  Its ids are Conductor's ids, or slugs of them.

    `scheduled_time` is 0, and `into` is empty, if the name does not contain them.
    """

    kind: Literal["staging", "claim"]
    workflow: str
    reference: str
    task_id: str
    scheduled_time: int = 0
    into: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The branches that an attempt drops to revoke its step's other attempts: staging branches first, claims last."""

    stagings: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    not_earlier: tuple[InternalBranch, ...] = ()
    """One branch for each other attempt that, according to its branch names, was not scheduled before this attempt."""

    def __bool__(self) -> bool:
        return bool(self.stagings or self.claims)


def staging_branch_name(attempt: Attempt, execution_id: str, *, on: str | None = None) -> str:
    """Return the name of an execution's staging branch.  `on` is the head on which the execution restages."""
    name = f"{staging_prefix(attempt, execution_id)}{_at(attempt)}"
    return f"{name}-on-{on[:SHORT]}" if on else name


def staging_prefix(attempt: Attempt, execution_id: str) -> str:
    """Return the common prefix of the staging branches of an execution and its reruns."""
    return (
        f"{STAGING}{_step(attempt)}-seq-{attempt.seq}-iteration-{attempt.iteration}"
        f"-task-id-{_id(attempt.task_id)}-retry-{attempt.retry_count}-exec-{execution_id}"
    )


def rerun_id(execution_id: str, number: int) -> str:
    """Return the execution id for rerun `number` of an execution.  A `number` of 0 means the first run.

    Names derived from it are unique and share the first run's prefix.
    """
    return f"{execution_id}r{number}" if number else execution_id


def claim_branch_name(attempt: Attempt, target: str) -> str:
    """Return the name of the branch whose creation makes one execution the attempt's only publisher on `target`.

    The name includes the scheduled time, because Conductor's `rerun` keeps the task id.  It includes the target,
    because whoever finds the claim must know where a publish request may still be in flight.
    """
    return f"{STAGING}{_step(attempt)}-claim-task-id-{_id(attempt.task_id)}{_at(attempt)}-into-{branch_part(target)}"


def branch_part(branch: str) -> str:
    """Return the part of a claim's name that identifies the target branch."""
    kept = _BRANCH.fullmatch(branch) and not _SLUG.fullmatch(branch) and len(branch) <= _LONGEST_PART
    return branch if kept else _slug(branch)


def is_slug(part: str) -> bool:
    """Return whether a part of a name is a slug, i.e. a substitute for a value that a name cannot contain."""
    return _SLUG.fullmatch(part) is not None


def replaced_tag_name(attempt: Attempt, head: str) -> str:
    """Return the name of the tag that preserves the head replaced by this attempt."""
    return f"{REPLACED}{_id(attempt.task_id)}-{head[:SHORT]}"


@dataclass(frozen=True, slots=True)
class WorkdirName:
    """The names of an execution's folder below the workspace root, one for each stage of its life.

    The folder is renamed from `making` to `working` after its marker is written, and to `removing` before it is
    emptied.
    """

    working: str
    making: str
    removing: str
    old: str
    """The folder name that earlier Perago versions used."""


def run_branch_name(attempt: Attempt) -> str:
    """Return the name of the run branch that this attempt of an open step creates.

    Conductor's `rerun` keeps the task id, so the name depends on the scheduled time, too.
    """
    return f"{RUN}{_id(attempt.workflow_instance_id)}-{_opened(attempt.task_id, str(attempt.scheduled_time))}"


def is_opened_by(name: str, task_id: str, scheduled_time: str) -> bool:
    """Return whether a run branch is the one that the task with this id, scheduled at this time, creates."""
    return is_run_branch(name) and name.endswith(f"-{_opened(task_id, scheduled_time)}")


def _opened(task_id: str, scheduled_time: str) -> str:
    return hashlib.sha256(f"{task_id} {scheduled_time}".encode()).hexdigest()[:SHORT]


def is_run_branch(name: str) -> bool:
    """Return whether a name is that of a run branch."""
    return _RUN.fullmatch(name) is not None


def run_branch_workflow(name: str) -> str | None:
    """Return the workflow, or its slug, in the name of a run branch.  Returns None for any other name."""
    match = _RUN.fullmatch(name)
    return match["workflow"] if match else None


def is_run_branch_of(name: str, workflow_id: str) -> bool:
    """Return whether a name is that of a run branch of this workflow."""
    return run_branch_workflow(name) == _id(workflow_id)


def published_tag_name(workflow_id: str, commit: str) -> str:
    """Return the name of the tag that keeps the commits of a run that was published up to this commit."""
    return f"{PUBLISHED}{_id(workflow_id)}-{commit[:SHORT]}"


def probe_branch_name(now: float, token: str) -> str:
    """Return the name of a branch for installing or probing the fence.

    It contains the time, so that the sweep can find branches left behind by a killed process.
    """
    return f"{PROBE}{int(now)}-{token}"


def put_branch_name(now: float, token: str) -> str:
    """Return the name of a staging branch for `perago put`, `merge` or `restore`.  It contains the time, too."""
    return f"{PUT}{int(now)}-{token}"


def scratch_branch_name(now: float, token: str, *, in_run: bool) -> str:
    """Return the name of the branch on which `perago reproduce` makes a publication again.

    It is that of a run branch if the input belongs to a run: the run's marker permits publications nowhere else.
    """
    return f"{RUN}reproduce-{token}" if in_run else put_branch_name(now, token)


def dated_branch_time(name: str) -> float | None:
    """Return the creation time in the name of a probe branch or `perago put` branch, or None for any other name."""
    match = _DATED.fullmatch(name)
    return float(match[1]) if match else None


def workdir_name(task_id: str, execution_id: str) -> WorkdirName:
    """Return the names of an execution's workdir folder."""
    owner = f"{_id(task_id)}-{execution_id}"
    return WorkdirName(WORKDIR + owner, MAKING + owner, REMOVING + owner, owner)


def removing_name(name: str) -> str:
    """Return the name that a workdir has while it is being removed."""
    return REMOVING + name.removeprefix(WORKDIR).removeprefix(MAKING).removeprefix(REMOVING)


@dataclass(frozen=True, slots=True)
class WorkdirOwner:
    """The owner of a folder, according to its name.  If `certain` is False, a user may have chosen that name."""

    execution_id: str
    certain: bool


def parse_workdir_name(name: str) -> WorkdirOwner | None:
    """Return the owner named in a workdir's name, or None for any other name.

    Old names are ambiguous without a marker file.
    """
    match = _WORKDIR.fullmatch(name)
    return WorkdirOwner(match["execution"], match["ours"] is not None) if match else None


def revoke_prefix(attempt: Attempt) -> str:
    """Return the common prefix of this step's staging and claim branches."""
    return f"{STAGING}{_step(attempt)}-"


def branches_to_revoke(attempt: Attempt, names: Iterable[str]) -> Revoked:
    """Return the branches of this step's other attempts.  If this attempt is current, all others have ended.

    Neither the names nor the times in them show whether this attempt is current, so the caller must ask the
    orchestrator.  Otherwise a worker that was suspended after its poll would revoke the attempt that replaced its own.
    """
    found: dict[str, list[str]] = {"staging": [], "claim": []}
    not_earlier: dict[tuple[str, int], InternalBranch] = {}
    for name in names:
        branch = parse_internal_branch(name)
        if branch is None or _step_of(branch) != _step(attempt) or _may_belong_to(branch, attempt):
            continue
        found[branch.kind].append(name)
        if branch.scheduled_time >= attempt.scheduled_time:
            not_earlier[branch.task_id, branch.scheduled_time] = branch
    return Revoked(tuple(found["staging"]), tuple(found["claim"]), tuple(not_earlier.values()))


def _may_belong_to(branch: InternalBranch, attempt: Attempt) -> bool:
    """Return whether a branch may belong to this attempt.

    The scheduled times must match if both are known, because Conductor's `rerun` keeps the task id.
    """
    times = {branch.scheduled_time, attempt.scheduled_time}
    return branch.task_id == _id(attempt.task_id) and (len(times) == 1 or 0 in times)


def parse_internal_branch(name: str) -> InternalBranch | None:
    """Parse the name of a staging or claim branch.  Returns None for any other name."""
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
    """Return a readable substitute for a value.

    The leading underscore distinguishes it from unchanged ids, and the digest distinguishes it from other slugs.
    """
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return "_" + re.sub(r"[^A-Za-z0-9]+", "_", value)[:40].strip("_") + "-x" + digest
