"""Sweeping a lake: staging and claim branches of attempts that are over, and tags of replaced heads.

    the owner is    a branch
    over            goes
    in use          stays, whatever its age
    unknown         goes once it is older than asked for; stays where nothing tells its age

Three steps, in this order.  `find_leftovers` lists; only then are orchestrators opened, so that each has heard of the
attempts whose branches were listed.  `judge` asks about all of them before anything goes: an orchestrator that cannot
be asked leaves everything as it is.  `remove` comes last, and may come late: a name holds the execution's id or the
time its task was scheduled, so an attempt that is over never makes that branch again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perago.errors import (
    LakeError,
    LakeNotFound,
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorUnavailable,
)
from perago.lake.base import Lake, Ref
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt import TERMINAL_STATUSES, Attempt
from perago.protocol.names import CLAIM, REPLACED, STAGING, InternalBranch, parse_internal_branch

log = logging.getLogger("perago.sweep")

Kind = Literal["staging", "claim", "tag"]
_PREFIXES: dict[Kind, str] = {"staging": STAGING, "claim": CLAIM}
_SCHEDULED = re.compile(r"-at-(\d+)$")
_ITS_BRANCH = "perago.staging_branch"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A branch or tag of Perago's own that may be in nobody's use any more."""

    repository: str
    kind: Kind
    name: str
    commit: str

    @property
    def owner(self) -> InternalBranch | None:
        """Whose it is, as its name tells; None for a tag, and for a name that Perago does not make."""
        return parse_internal_branch(self.name)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a leftover goes, and why."""

    leftover: Leftover
    goes: bool
    why: str


@dataclass(frozen=True, slots=True)
class Owners:
    """The orchestrators to ask; `complete` where no other one can own a branch of this lake."""

    orchestrators: Sequence[Orchestrator]
    complete: bool

    def status(self, owner: InternalBranch) -> str | None:
        """What an orchestrator says about the task; None where none knows it."""
        # An id that no branch name can hold was made into a slug, and nobody knows a task by that.
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
                    f"nothing was removed, because task {owner.task_id} cannot be asked for: {error}"
                ) from error
        return "not found" if self.complete else None


def find_leftovers(lake: Lake, repositories: Sequence[str], *, tags: bool) -> list[Leftover]:
    """List what may be left over in these repositories; in all of them if none is named."""
    found: list[Leftover] = []
    for repository in repositories or lake.repositories():
        try:
            found += _leftovers_of(lake, repository, tags=tags)
        except LakeNotFound:
            # Of all repositories one may go while this looks; one that was asked for must be there.
            if repositories:
                raise
    return found


def judge(
    lake: Lake, leftovers: Iterable[Leftover], owners: Owners, *, now: float, older_than: float
) -> list[Verdict]:
    """Decide about every leftover; ages are in seconds."""
    statuses: dict[str, str | None] = {}

    def status(owner: InternalBranch) -> str | None:
        if owner.task_id not in statuses:
            statuses[owner.task_id] = owners.status(owner)
        return statuses[owner.task_id]

    return [
        _judged_by_age(lake, one, now, older_than)
        if one.kind == "tag"
        else _judged_by_owner(lake, one, status, now, older_than)
        for one in leftovers
    ]


def remove(lake: Lake, verdicts: Iterable[Verdict]) -> Iterator[tuple[Verdict, LakeError | None]]:
    """Remove what goes, and tell of each how that ended."""
    for verdict in verdicts:
        if verdict.goes:
            yield verdict, _removal(lake, verdict.leftover)


def _removal(lake: Lake, one: Leftover) -> LakeError | None:
    drop = lake.drop_tag if one.kind == "tag" else lake.drop_branch
    try:
        drop(one.repository, one.name)
    except LakeError as error:
        log.warning("failed to remove %s of %s: %s", one.name, one.repository, error)
        return error
    log.info("swept %s of %s", one.name, one.repository)
    return None


def _leftovers_of(lake: Lake, repository: str, *, tags: bool) -> list[Leftover]:
    def made(kind: Kind, refs: Sequence[Ref]) -> list[Leftover]:
        return [Leftover(repository, kind, ref.name, ref.commit) for ref in refs]

    found = [
        one for kind, prefix in _PREFIXES.items() for one in made(kind, lake.branches(repository, prefix))
    ]
    return found + (made("tag", lake.tags(repository, REPLACED)) if tags else [])


def _judged_by_owner(
    lake: Lake,
    one: Leftover,
    status: Callable[[InternalBranch], str | None],
    now: float,
    older_than: float,
) -> Verdict:
    owner = one.owner
    if owner is None:
        return Verdict(one, goes=False, why="its name is none that Perago makes")
    said = status(owner)
    if said is None:
        return _judged_by_age(lake, one, now, older_than)
    over = said in TERMINAL_STATUSES or said == "not found"
    return Verdict(one, goes=over, why=f"task {owner.task_id} is {said}")


def _judged_by_age(lake: Lake, one: Leftover, now: float, older_than: float) -> Verdict:
    made = _made_at(lake, one)
    whose = "the head it keeps" if one.kind == "tag" else "no orchestrator knows its task, and it"
    if made is None:
        return Verdict(one, goes=False, why="no orchestrator knows its task, and nothing tells its age")
    age = max(0.0, now - made)
    return Verdict(one, goes=age > older_than, why=f"{whose} is {_told(age)} old")


def _made_at(lake: Lake, one: Leftover) -> float | None:
    """When a leftover was made, as far as it says so itself.

    A branch without a commit of its own is at its input, which may be years older than the branch.
    """
    if one.kind == "claim":
        # Only Conductor tells when a task was scheduled, in milliseconds.
        scheduled = _SCHEDULED.search(one.name)
        return int(scheduled[1]) / 1000 if scheduled else None
    try:
        commit = lake.commit_at(one.repository, one.commit)
    except LakeNotFound:
        return None
    own = one.kind == "tag" or commit.metadata.get(_ITS_BRANCH) == one.name
    return commit.created if own else None


def _told(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} seconds"
