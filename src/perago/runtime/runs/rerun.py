"""Starts a new run at a step of an old one, on new branches.

The old run's branches have moved since the step read them, and a publication is accepted only on the head that it
expects.  So for every branch of the old run, a sibling is created at the commit that was passed to the step or to the
first later step on that branch.  The old branches and the old run are not changed.

    main ── A ── B (old run: two) ── C (old run: three)
            └─── main-from-two-1a2b3c       the start of --from two
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError
from perago.lake.base import ReadableLake
from perago.protocol.names import is_run_branch
from perago.protocol.publication import MAX_RANGE
from perago.runtime.runs.record import Run, save_run
from perago.runtime.worker.plan import WorkerPlan, check_lake, register_missing_taskdefs

if TYPE_CHECKING:
    from perago.backend import Embedded, Recording, Task

Branches = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Sibling:
    """A branch of the old run, and the new run's branch (`name`) that replaces it."""

    repository: str
    branch: str
    name: str
    commit: str
    origin: str = ""
    """The branch to merge the new one into: that of the first run, if the old run was started at a step itself."""
    joined: tuple[str, ...] = ()
    """The commits that the step joins, if there are several.  The branch starts at the last of them."""


def begin_from(
    old: Run, step: str, *, run_id: str, servers: tuple[Embedded, Embedded], plan: WorkerPlan
) -> tuple[Run, list[Sibling]]:
    """Start a new run at a step of the run `old`.  `servers` is a pair: the old run's servers and the new run's."""
    recorded = servers[0].recording(old.workflow_id, step)
    siblings = list(siblings_of(recorded, step, run_id.rpartition("-")[2]))
    if any(is_run_branch(sibling.branch) for sibling in siblings):
        raise RuntimeConfigError(
            f"step {step!r} belongs to a run that is published whole, and a part of it cannot be started again: continue "
            f"with `perago run --resume {old.id}` if the run failed, or start a new run"
        )
    with plan.spec.servers.opened() as (lake, orchestrator):
        check_lake(lake)
        register_missing_taskdefs(orchestrator, list(plan.tasks.values()))
        siblings = [with_last_joined_commit(lake, sibling) for sibling in siblings]
        for sibling in siblings:
            lake.create_branch(sibling.repository, sibling.name, sibling.commit, hidden=False)
        workflow_id = servers[1].start_from(recorded, redirections(recorded.branches, siblings))
    run = replace(
        old,
        id=run_id,
        workflow_id=workflow_id,
        from_run=old.id,
        from_step=step,
        input=_redirected(old.input, siblings),
        resumed=(),
    ).with_recompute(plan.spec.recompute)
    save_run(plan.settings.root, run)
    return run, siblings


def siblings_of(recorded: Recording, step: str, token: str) -> Iterator[Sibling]:
    """Yield the new run's branches.

    Each branch starts at the first commit that the repeated steps read from it or, if they read none, at the last commit
    used before the step at which the new run starts.
    """
    commits: dict[tuple[str, str], list[str]] = {}
    for task in _in_order(recorded.after):
        for pair, refs in _refs(task.input, recorded.branches).items():
            commits.setdefault(pair, refs)
    earlier: dict[tuple[str, str], list[str]] = {}
    for task in _in_order(recorded.done):
        earlier.update(_refs(task.input, recorded.branches))
        earlier.update(_refs(task.output, recorded.branches))
    for (repository, branch), refs in {**earlier, **commits}.items():
        # If the old run was itself started at a step, name the branch after the original one.
        origins = {new: old for old, new in recorded.branches.get(repository, {}).items()}
        origin = origins.get(branch, branch)
        name = f"{origin}-from-{_branch_part(step)}-{token}"
        yield Sibling(repository, branch, name, refs[-1], origin, tuple(refs) if len(refs) > 1 else ())


def with_last_joined_commit(lake: ReadableLake, sibling: Sibling) -> Sibling:
    """Return the sibling, starting at the commit whose history contains all the joined ones.

    If there is no such commit, returns the sibling unchanged, and the step itself reports the problem.
    """
    for ref in sibling.joined:
        below = {commit.id for commit in lake.log(sibling.repository, ref, MAX_RANGE)}
        if below.issuperset(sibling.joined):
            return replace(sibling, commit=ref)
    return sibling


def redirections(before: Branches, siblings: Iterable[Sibling]) -> Branches:
    """Return the replacement for each branch, by repository.

    Redirections from earlier reruns are updated to point to the newest branch.
    """
    found: dict[str, dict[str, str]] = {}
    for sibling in siblings:
        found.setdefault(sibling.repository, {})[sibling.branch] = sibling.name
    for repository, names in before.items():
        own = found.setdefault(repository, {})
        own.update({branch: own.get(name, name) for branch, name in names.items()})
    return found


def _redirected(given: Mapping[str, Any] | None, siblings: Sequence[Sibling]) -> Mapping[str, Any] | None:
    """Return the recorded input with the new run's branches and the commits at which they start."""
    names = {(one.repository, one.branch): one for one in siblings}

    def redirect(value: Any) -> Any:
        if isinstance(value, list):
            return [redirect(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        sibling = names.get((str(value.get("repository")), str(value.get("branch"))))
        return value if sibling is None else {**value, "branch": sibling.name, "ref": sibling.commit}

    return None if given is None else {name: redirect(value) for name, value in given.items()}


def _in_order(tasks: Sequence[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: task.seq)


def _refs(values: Mapping[str, Any], branches: Branches) -> dict[tuple[str, str], list[str]]:
    """Return the commits in the `workspace` of an input or output, by branch.

    A branch has several commits if they are to be joined.  Values that a redirected run copied from an earlier run name
    the earlier run's branch.  They are mapped to the redirected run's own branch.
    """
    workspaces = values.get("workspace")
    found: dict[tuple[str, str], list[str]] = {}
    for workspace in workspaces if isinstance(workspaces, list) else [workspaces]:
        if not isinstance(workspace, Mapping):
            continue
        repository, branch, ref = (workspace.get(name) for name in ("repository", "branch", "ref"))
        if isinstance(repository, str) and isinstance(branch, str) and isinstance(ref, str):
            own = branches.get(repository, {}).get(branch, branch)
            found.setdefault((repository, own), []).append(ref)
    return found


def _branch_part(step: str) -> str:
    """Convert a step's reference to part of a branch name: letters, digits, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", step).strip("-")[:60] or "step"
