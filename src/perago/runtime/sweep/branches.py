"""Sweeps a lake: removes staging and claim branches of attempts that are over, and tags that preserve replaced heads.

    the owner is                    the branch is
    an attempt that is over         removed
    a fence probe or `perago put`   removed when it is older than the limit
    an attempt that is not over     kept, whatever its age
    a run                           as its workflow is (`runs`)
    a published run (its tag)       removed when it is older than the limit, unless a ledger still needs it (`runs`)
    unknown                         removed when it is older than the limit; kept if its age is unknown

A claim is removed only after a barrier, and only if no staging branch of its task is kept: a dead attempt's publish request
may be in flight for as long as its claim exists.  A run branch is removed after all claims into it.

There are three steps, in this order.  First, `find_leftovers` lists branches and tags.  Orchestrators are opened after
that, so that each already knows the attempts whose branches were listed.  Then `judge` looks up all attempts before
anything is removed: if a lookup fails, everything is kept.  `remove` comes last, and may run much later: a branch name
contains the execution's id or the time at which its task was scheduled, so an attempt that is over never creates that
branch again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from perago.errors import (
    LakeError,
    LakeNotFound,
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorUnavailable,
)
from perago.lake.base import PublishingLake, ReadableLake
from perago.orchestrator.base import AttemptReader, WorkflowState
from perago.protocol.attempt import TERMINAL_STATUSES, Attempt
from perago.protocol.metadata import STAGING_BRANCH
from perago.protocol.names import (
    OLD_CLAIM,
    PROBE,
    PUBLISHED,
    PUT,
    REPLACED,
    RUN,
    STAGING,
    InternalBranch,
    branch_part,
    dated_branch_time,
    is_opened_by,
    is_run_branch,
    is_slug,
    parse_internal_branch,
    run_branch_workflow,
)
from perago.runtime.internal_branches import target_of_claim
from perago.runtime.ledger import runs_with_results

log = logging.getLogger("perago.sweep")

Kind = Literal["staging", "claim", "proof", "put", "tag", "run", "run tag"]
_BARRIER_SECONDS = 60.0
_ORIGINS = {
    "tag": "the head it keeps",
    "proof": "the fence was proven on it, and it",
    "put": "`perago put` staged on it, and it",
    "run": "its last commit",
    "run tag": "the run whose commits it keeps",
}


@dataclass(frozen=True, slots=True)
class Leftover:
    """An internal branch or tag that may no longer be in use."""

    repository: str
    kind: Kind
    name: str
    commit: str

    @property
    def owner(self) -> InternalBranch | None:
        """The owner encoded in the branch's name; None for tags, and for names that are not Perago's."""
        return parse_internal_branch(self.name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision whether to remove a leftover, with the reason."""

    leftover: Leftover
    goes: bool
    why: str


@dataclass(frozen=True, slots=True)
class Owners:
    """The orchestrators that may own branches.  `complete` is True if no other one can own a branch in this lake."""

    orchestrators: Sequence[AttemptReader]
    complete: bool

    def status(self, owner: InternalBranch) -> str | None:
        """Return the status of the owner's task.

        If no orchestrator knows the task, returns "not found" if `complete` is True, and None otherwise.  Raises
        `OrchestratorUnavailable` if the lookup fails.
        """
        # A slug replaces an id that cannot be part of a branch name; no orchestrator knows a task by its slug.
        if owner.task_id.startswith("_"):
            return None
        attempt = Attempt(owner.workflow, owner.task_id, "", "", retry_count=0, seq=0, iteration=0)
        for orchestrator in self.orchestrators:
            try:
                return orchestrator.current(attempt).status
            except OrchestratorNotFound:
                continue
            except OrchestratorError as error:
                raise OrchestratorUnavailable(
                    f"nothing was removed, because task {owner.task_id} cannot be looked up: {error}"
                ) from error
        return "not found" if self.complete else None

    def workflow(self, workflow_id: str) -> WorkflowState | None:
        """Return a workflow, or None if no orchestrator knows it.  Raises `OrchestratorUnavailable` if the lookup fails."""
        for orchestrator in () if is_slug(workflow_id) else self.orchestrators:
            try:
                return orchestrator.workflow(workflow_id)
            except OrchestratorNotFound:
                continue
            except OrchestratorError as error:
                raise OrchestratorUnavailable(
                    f"nothing was removed, because workflow {workflow_id} cannot be looked up: {error}"
                ) from error
        return None


def find_leftovers(
    lake: ReadableLake, repositories: Sequence[str], *, tags: bool, runs: bool = False
) -> list[Leftover]:
    """List possible leftovers in these repositories, or in all repositories if none are named.

    Tags of replaced heads are listed only with `tags`, and those of published runs only with `runs`.
    """
    found: list[Leftover] = []
    for repository in repositories or lake.repositories():
        try:
            found += _leftovers_of(lake, repository, tags=tags, runs=runs)
        except LakeNotFound:
            # A repository may disappear during the listing, but one that the caller named must exist.
            if repositories:
                raise
    return found


def judge(
    lake: ReadableLake,
    leftovers: Iterable[Leftover],
    owners: Owners,
    *,
    now: float,
    older_than: float,
    runs: bool = False,
) -> list[Verdict]:
    """Decide for each leftover whether to remove it.  Times and ages are in seconds.

    With `runs`, the branches of runs that did not complete go as well, if they are older than the limit.
    """
    statuses: dict[str, str | None] = {}

    def status(owner: InternalBranch) -> str | None:
        if owner.task_id not in statuses:
            statuses[owner.task_id] = owners.status(owner)
        return statuses[owner.task_id]

    @cache
    def needed_runs(repository: str) -> frozenset[str]:
        return frozenset(runs_with_results(lake, repository))

    def verdict(one: Leftover) -> Verdict:
        if one.kind == "run":
            by_age = _judge_by_age(lake, one, now, older_than)
            return _judge_run(one, owners.workflow(run_branch_workflow(one.name) or ""), by_age, runs=runs)
        if one.kind == "run tag":
            return _judge_run_tag(one, _judge_by_age(lake, one, now, older_than), needed_runs)
        if one.kind in ("tag", "proof", "put"):
            return _judge_by_age(lake, one, now, older_than)
        return _judge_by_owner(lake, one, status, now, older_than)

    return _runs_after_claims(_claims_after_stagings([verdict(one) for one in leftovers]))


def remove(lake: PublishingLake, verdicts: Iterable[Verdict]) -> Iterator[tuple[Verdict, LakeError | None]]:
    """Remove the leftovers that the verdicts say to remove, claims and then run branches last, claims after a barrier.

    Yields the verdict on each of them with the error, or with None if the removal succeeded.
    """
    going = [verdict for verdict in verdicts if verdict.goes]
    failed: dict[tuple[str, str], LakeError] = {}
    for verdict in going:
        if verdict.leftover.kind not in ("claim", "run"):
            error = _remove(lake, verdict.leftover)
            if error is not None:
                failed[_task_of(verdict.leftover)] = error
            yield verdict, error
    barriers = _Barriers(lake)
    for verdict in going:
        one = verdict.leftover
        if one.kind == "claim":
            error = failed.get(_task_of(one)) or barriers.error_for(one) or _remove(lake, one)
            if error is not None:
                failed[_target_of(one)] = error
            yield verdict, error
    for verdict in going:
        one = verdict.leftover
        if one.kind == "run":
            yield verdict, failed.get((one.repository, branch_part(one.name))) or _remove(lake, one)


class _Barriers:
    """Sends at most one barrier to each branch that claims name, and remembers the error, if any."""

    def __init__(self, lake: PublishingLake) -> None:
        self._lake = lake
        self._errors: dict[tuple[str, str], LakeError | None] = {}

    def error_for(self, claim: Leftover) -> LakeError | None:
        """Send the barrier for a claim if necessary.  Returns the error if the claim must be kept, or None."""
        try:
            # Claims from old Perago versions do not name a branch.  They are old enough not to need a barrier.
            target = target_of_claim(self._lake, claim.repository, claim.name, unnamed=None)
        except LakeError as error:
            return error
        if target is None:
            return None
        key = (claim.repository, target)
        if key not in self._errors:
            self._errors[key] = self._send(*key)
        return self._errors[key]

    def _send(self, repository: str, branch: str) -> LakeError | None:
        try:
            self._lake.barrier(repository, branch, _BARRIER_SECONDS)
        except LakeError as error:
            log.warning(
                "barrier on branch %s of %s failed, keeping its claims: %s", branch, repository, error
            )
            return error
        return None


def _remove(lake: PublishingLake, one: Leftover) -> LakeError | None:
    drop = lake.drop_tag if one.kind in ("tag", "run tag") else lake.drop_branch
    try:
        drop(one.repository, one.name)
    except LakeError as error:
        log.warning("failed to remove %s of %s: %s", one.name, one.repository, error)
        return error
    log.info("swept %s of %s", one.name, one.repository)
    return None


def _task_of(one: Leftover) -> tuple[str, str]:
    return one.repository, one.owner.task_id if one.owner is not None else one.name


def _target_of(claim: Leftover) -> tuple[str, str]:
    return claim.repository, claim.owner.into if claim.owner is not None else ""


def _leftovers_of(lake: ReadableLake, repository: str, *, tags: bool, runs: bool) -> list[Leftover]:
    found = [
        Leftover(repository, _kind(ref.name), ref.name, ref.commit)
        for prefix in (STAGING, OLD_CLAIM)
        for ref in lake.branches(repository, prefix)
    ]
    dated: tuple[tuple[Kind, str], ...] = (("proof", PROBE), ("put", PUT))
    found += [
        Leftover(repository, kind, ref.name, ref.commit)
        for kind, prefix in dated
        for ref in lake.branches(repository, prefix)
        if dated_branch_time(ref.name) is not None
    ]
    found += [
        Leftover(repository, "run", ref.name, ref.commit)
        for ref in lake.branches(repository, RUN)
        if is_run_branch(ref.name)
    ]
    kept: tuple[tuple[bool, Kind, str], ...] = ((tags, "tag", REPLACED), (runs, "run tag", PUBLISHED))
    found += [
        Leftover(repository, kind, ref.name, ref.commit)
        for wanted, kind, prefix in kept
        if wanted
        for ref in lake.tags(repository, prefix)
    ]
    return found


def _kind(name: str) -> Kind:
    owner = parse_internal_branch(name)
    return owner.kind if owner is not None else "staging"


def _claims_after_stagings(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, changed so that no claim is removed while a staging branch of its task is kept."""
    stay = {_task_of(one.leftover) for one in verdicts if one.leftover.kind == "staging" and not one.goes}
    return [
        Verdict(one.leftover, goes=False, why="a staging branch of its task stays")
        if one.goes and one.leftover.kind == "claim" and _task_of(one.leftover) in stay
        else one
        for one in verdicts
    ]


def _runs_after_claims(verdicts: list[Verdict]) -> list[Verdict]:
    """Return the verdicts, changed so that no run branch is removed while a claim into it is kept."""
    stay = {_target_of(one.leftover) for one in verdicts if one.leftover.kind == "claim" and not one.goes}
    return [
        Verdict(one.leftover, goes=False, why="a claim into it stays")
        if one.goes
        and one.leftover.kind == "run"
        and (one.leftover.repository, branch_part(one.leftover.name)) in stay
        else one
        for one in verdicts
    ]


def _judge_run(one: Leftover, workflow: WorkflowState | None, by_age: Verdict, *, runs: bool) -> Verdict:
    """Decide about a run branch.  `by_age` is the verdict of its age alone.

    The branch of a run that did not complete is where the run can be resumed, so it goes only on request.
    """
    if workflow is None:
        why = "no orchestrator knows its workflow"
        return _on_request(one, by_age, why, runs=runs)
    name = f"workflow {workflow.id} is {workflow.status}"
    opened = _opened_branches(workflow)
    if workflow.running:
        if one.name in opened or _is_being_opened(workflow, one.name) or not by_age.goes:
            return Verdict(one, goes=False, why=name)
        return Verdict(one, goes=True, why=f"{name}, and works on another run branch")
    if workflow.status == "COMPLETED" and one.name not in opened:
        return Verdict(one, goes=True, why=f"{name}, and has worked on another run branch")
    if workflow.status == "COMPLETED" and _has_published(workflow, one.name):
        return Verdict(one, goes=True, why=f"{name}, and its run is published")
    return _on_request(one, by_age, f"{name}, and its run is not published", runs=runs)


def _judge_run_tag(one: Leftover, by_age: Verdict, needed_runs: Callable[[str], frozenset[str]]) -> Verdict:
    """Decide about the tag of a published run.  `by_age` is the verdict of its age alone."""
    if by_age.goes and one.commit in needed_runs(one.repository):
        return Verdict(
            one, goes=False, why="it has the recorded results of a task's last publication on a branch"
        )
    return by_age


def _on_request(one: Leftover, by_age: Verdict, why: str, *, runs: bool) -> Verdict:
    if not runs:
        return Verdict(one, goes=False, why=f"{why}: `perago sweep --runs --older-than AGE` removes it")
    return Verdict(one, goes=by_age.goes, why=f"{why}, and {by_age.why}")


def _opened_branches(workflow: WorkflowState) -> set[str]:
    """Return the run branches that the workflow's steps have opened and given to the steps after them."""
    opened: dict[str, str] = {}
    for task in workflow.tasks:
        workspace = task.output.get("workspace")
        if task.status == "COMPLETED" and "origin" in task.output and isinstance(workspace, Mapping):
            opened[task.reference] = str(workspace.get("branch"))
    return set(opened.values())


def _is_being_opened(workflow: WorkflowState, branch: str) -> bool:
    """Return whether a task in progress opens the run on this branch.

    Before that task has committed the marker, the branch has the age of the commit from which the run starts.
    """
    return any(
        is_opened_by(branch, task.task_id, str(round((task.scheduled or 0.0) * 1000)))
        for task in workflow.tasks
        if task.status not in TERMINAL_STATUSES
    )


def _has_published(workflow: WorkflowState, branch: str) -> bool:
    for task in workflow.tasks:
        params, given = task.input.get("params"), task.input.get("workspace")
        publishes = task.status == "COMPLETED" and isinstance(params, Mapping) and "origin" in params
        for workspace in (given if isinstance(given, list) else [given]) if publishes else ():
            if isinstance(workspace, Mapping) and workspace.get("branch") == branch:
                return True
    return False


def _judge_by_owner(
    lake: ReadableLake,
    one: Leftover,
    status: Callable[[InternalBranch], str | None],
    now: float,
    older_than: float,
) -> Verdict:
    owner = one.owner
    if owner is None:
        return Verdict(one, goes=False, why="Perago does not create branches of this name")
    found = status(owner)
    if found is None:
        return _judge_by_age(lake, one, now, older_than)
    over = found in TERMINAL_STATUSES or found == "not found"
    return Verdict(one, goes=over, why=f"task {owner.task_id} is {found}")


def _judge_by_age(lake: ReadableLake, one: Leftover, now: float, older_than: float) -> Verdict:
    made = _made_at(lake, one)
    origin = _ORIGINS.get(one.kind, "no orchestrator knows its task, and it")
    if made is None:
        return Verdict(one, goes=False, why="no orchestrator knows its task, and nothing tells its age")
    age = max(0.0, now - made)
    if age > older_than:
        return Verdict(one, goes=True, why=f"{origin} is {_format_age(age)} old")
    left = older_than - age
    return Verdict(
        one,
        goes=False,
        why=f"{origin} is {_format_age(age)} old: it goes when it is older than {_format_age(older_than)}, "
        f"in {_format_age(left)}",
    )


def _made_at(lake: ReadableLake, one: Leftover) -> float | None:
    """Return when a leftover was created, or None if unknown.

    The head of a branch without commits of its own is its input commit, which may be years older than the branch.  In that
    case, the branch's name tells when its task was scheduled, and that time is used.
    """
    if one.kind in ("proof", "put"):
        return dated_branch_time(one.name)
    scheduled = (
        one.owner.scheduled_time / 1000 if one.owner is not None and one.owner.scheduled_time else None
    )
    if one.kind == "claim":
        return scheduled
    try:
        commit = lake.commit_at(one.repository, one.commit)
    except LakeNotFound:
        return scheduled
    own = one.kind in ("tag", "run", "run tag") or commit.metadata.get(STAGING_BRANCH) == one.name
    return commit.created if own else scheduled


def _format_age(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} seconds"
