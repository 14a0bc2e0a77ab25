"""A new run that starts at a step of an old one, on new branches.

The old run's branch has moved on since the step read it, and a publication is made only from the head it expects.  So every
branch that the old run worked on gets a sibling at the commit that the step, or the first step after it, was given; the old
branches and the old run stay as they are.

    main ── A ── B (old run: two) ── C (old run: three)
            └─── main-from-two-1a2b3c       where --from two begins
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from perago.lake.base import Lake
from perago.protocol.publication import MAX_RANGE
from perago.runtime.runs.record import Run, save_run
from perago.runtime.servers import opened
from perago.runtime.worker.plan import WorkerPlan, check_lake, mend_taskdefs

Branches = Mapping[str, Mapping[str, str]]


class RecordedTask(Protocol):
    """A task that a run has done or begun."""

    input: dict[str, Any]
    output: dict[str, Any]
    seq: int


class Recorded(Protocol):
    """What a run did before a step (`done`), and from there on (`after`)."""

    @property
    def done(self) -> Sequence[RecordedTask]:
        """Tasks that are not done again."""

    @property
    def after(self) -> Sequence[RecordedTask]:
        """Tasks of the step and of what follows."""

    @property
    def branches(self) -> Branches:
        """The branches that the run was redirected to itself."""


class Recordings(Protocol):
    """Servers whose runs can start at a step of another run."""

    def recording(self, workflow_id: str, step: str) -> Any:
        """What the run did before the step."""

    def start_from(self, recorded: Any, branches: Branches) -> str:
        """Start a workflow there; returns its id."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """A branch of the old run, and the one that the new run works on in its place."""

    repository: str
    branch: str
    name: str
    commit: str
    joined: tuple[str, ...] = ()
    """All the commits that the step joins, where it joins several: the branch begins at the last of them."""


def begin_from(
    old: Run, step: str, *, run_id: str, servers: tuple[Recordings, Recordings], plan: WorkerPlan
) -> tuple[Run, list[Sibling]]:
    """Start a run at a step of `old`; `servers` are those of the old run and of the new one."""
    recorded = servers[0].recording(old.workflow_id, step)
    siblings = list(siblings_of(recorded, step, run_id.rpartition("-")[2]))
    with opened(plan.spec.servers) as (lake, orchestrator):
        check_lake(lake)
        mend_taskdefs(orchestrator, list(plan.tasks.values()))
        siblings = [at_the_last(lake, sibling) for sibling in siblings]
        _make(lake, siblings)
        workflow_id = servers[1].start_from(recorded, redirections(recorded.branches, siblings))
    begun = replace(old, id=run_id, workflow_id=workflow_id, from_run=old.id, from_step=step)
    save_run(plan.settings.root, begun)
    return begun, siblings


def siblings_of(recorded: Recorded, step: str, token: str) -> Iterator[Sibling]:
    """The new branches: each at the first commit that is read again, or at the last one that was published before."""
    commits: dict[tuple[str, str], list[str]] = {}
    for task in _in_order(recorded.after):
        for pair, refs in _refs(task.input, recorded.branches).items():
            commits.setdefault(pair, refs)
    earlier: dict[tuple[str, str], list[str]] = {}
    for task in _in_order(recorded.done):
        earlier.update(_refs(task.input, recorded.branches))
        earlier.update(_refs(task.output, recorded.branches))
    for (repository, branch), refs in {**earlier, **commits}.items():
        # The branch of a run that started at a step itself goes by the name of the first one.
        origins = {new: old for old, new in recorded.branches.get(repository, {}).items()}
        name = f"{origins.get(branch, branch)}-from-{_part(step)}-{token}"
        yield Sibling(repository, branch, name, refs[-1], tuple(refs) if len(refs) > 1 else ())


def at_the_last(lake: Lake, sibling: Sibling) -> Sibling:
    """The branch at the commit that holds all that its step joins; where none does, the step itself says so."""
    for ref in sibling.joined:
        below = {commit.id for commit in lake.log(sibling.repository, ref, MAX_RANGE)}
        if below.issuperset(sibling.joined):
            return replace(sibling, commit=ref)
    return sibling


def redirections(before: Branches, siblings: Iterable[Sibling]) -> Branches:
    """By repository and branch, the branch that a task gets instead; what was redirected before goes on to the newest."""
    found: dict[str, dict[str, str]] = {}
    for sibling in siblings:
        found.setdefault(sibling.repository, {})[sibling.branch] = sibling.name
    for repository, names in before.items():
        own = found.setdefault(repository, {})
        own.update({branch: own.get(name, name) for branch, name in names.items()})
    return found


def _make(lake: Lake, siblings: Iterable[Sibling]) -> None:
    for sibling in siblings:
        lake.create_branch(sibling.repository, sibling.name, sibling.commit, hidden=False)


def _in_order(tasks: Sequence[RecordedTask]) -> list[RecordedTask]:
    return sorted(tasks, key=lambda task: task.seq)


def _refs(values: Mapping[str, Any], branches: Branches) -> dict[tuple[str, str], list[str]]:
    """By branch, the commits in an input's or output's `workspace`, which may join several.

    What a redirected run took over from the run before it names that one's branch: its own is meant.
    """
    given = values.get("workspace")
    found: dict[tuple[str, str], list[str]] = {}
    for workspace in given if isinstance(given, list) else [given]:
        if not isinstance(workspace, Mapping):
            continue
        repository, branch, ref = (workspace.get(name) for name in ("repository", "branch", "ref"))
        if isinstance(repository, str) and isinstance(branch, str) and isinstance(ref, str):
            own = branches.get(repository, {}).get(branch, branch)
            found.setdefault((repository, own), []).append(ref)
    return found


def _part(step: str) -> str:
    """A step's reference as part of a branch name: letters, digits, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", step).strip("-")[:60] or "step"
