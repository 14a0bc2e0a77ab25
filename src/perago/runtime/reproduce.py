"""Makes a publication again: runs its step from the same input commit, and compares the files with the commit's.

The step runs in this process, on a hidden branch that starts at the input commit, is never merged, and is dropped at the
end.  Its name is that of a branch of `perago put`, or of a run, so the sweep removes it if this process is killed.  The
step's attempt is that of a workflow of its own, on an orchestrator that nobody else polls, so no worker takes it and the
original workflow does not change.  It has no retries, and no time limits.

The body runs even if the task skips unchanged work.  What `changes()` names is what it named at that commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from perago.declare.code_origin import provenance_of
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import RuntimeConfigError
from perago.lake.base import Change, Commit, ReadableLake
from perago.orchestrator.base import Orchestrator
from perago.protocol.ledger import Recompute, params_digest
from perago.protocol.metadata import INPUT_REF, PARAMS_DIGEST, RUN_COMMIT, RUN_STEPS, TASK, WRITES
from perago.protocol.names import SHORT, scratch_branch_name
from perago.protocol.provenance import Provenance
from perago.protocol.signing import Maker, maker_of
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.contract import read_input
from perago.runtime.attempt.delivery import Executor
from perago.runtime.internal_branches import drop_quietly
from perago.runtime.lake_lookup import has_marker
from perago.runtime.ledger import differences
from perago.runtime.upstream import roots_of

MOST_CHANGES = 1000
_REFERENCE = "step"
_WORKFLOW = "perago_reproduce"


@dataclass(frozen=True, slots=True)
class Original:
    """A publication that can be made again."""

    repository: str
    commit: Commit
    maker: Maker
    task: str
    """The task's name, or "" for a commit of an earlier Perago, which does not record it."""

    @property
    def made_with(self) -> Provenance:
        """The code and the environment of the publication."""
        return Provenance.of(self.commit.metadata)


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A publication, and how the files differ that the same step has made again.

    `changes` are at most `MOST_CHANGES`: `added` means that only the new files have one.
    """

    original: Original
    made_with: Provenance
    same_params: bool
    changes: Sequence[Change]

    @property
    def identical(self) -> bool:
        """True if every file that the task may write has the same bytes."""
        return not self.changes


def find_original(lake: ReadableLake, repository: str, ref: str) -> Original:
    """Return the publication at a commit.  Raises `RuntimeConfigError` if it cannot be made again."""
    commit = lake.commit_at(repository, ref)
    maker, metadata = maker_of(commit), commit.metadata
    short = commit.id[:SHORT]
    if RUN_COMMIT in metadata:
        raise RuntimeConfigError(
            f"commit {short} publishes a whole run: name the commit of one of its steps, {metadata.get(RUN_STEPS, '')[:300]}"
        )
    if maker is None or not metadata.get(INPUT_REF):
        raise RuntimeConfigError(
            f"no attempt made commit {short}: name the commit of a step; `perago blame {repository} PATH` finds it"
        )
    return Original(repository, commit, maker, metadata.get(TASK, ""))


def choose_task(original: Original, tasks: Sequence[TaskDefinition]) -> TaskDefinition:
    """Return the task that made a publication.  Raises `RuntimeConfigError` if it is not among these."""
    found = [task for task in tasks if task.name == original.task or (not original.task and len(tasks) == 1)]
    if not found:
        names = ", ".join(task.name for task in tasks)
        wanted = f"task {original.task!r}" if original.task else "a task that it does not name"
        raise RuntimeConfigError(
            f"commit {original.commit.id[:SHORT]} was made by {wanted}, and --tasks has {names}: name its module"
        )
    return found[0]


def reproduce(
    original: Original,
    task: TaskDefinition,
    params: Mapping[str, Any],
    context: AttemptContext,
    *,
    branch: tuple[float, str],
    orchestrator: Orchestrator,
) -> Reproduction:
    """Make a publication again on a hidden branch, which is created and dropped.  `branch` is the time, and 12 hex digits.

    Raises `RuntimeConfigError` if the attempt does not complete.
    """
    lake, repository, metadata = context.lake, original.repository, original.commit.metadata
    start = lake.commit_at(repository, metadata[INPUT_REF]).id
    scratch = scratch_branch_name(*branch, in_run=has_marker(lake, repository, start))
    workspace = {"repository": repository, "branch": scratch, "ref_type": "commit", "ref": start}
    payload = {"workspace": workspace, "params": params}
    digest = params_digest(read_input(task, payload).plain_params)
    lake.create_branch(repository, scratch, start)
    try:
        made = _run(task, payload, orchestrator, context)
        found = differences(lake, (repository, original.commit.id, made), roots_of(metadata.get(WRITES)))
        changes = tuple(islice(found, MOST_CHANGES))
    finally:
        drop_quietly(lake, repository, scratch)
    same = metadata.get(PARAMS_DIGEST, digest) == digest
    return Reproduction(original, provenance_of(task, context.image), same, changes)


def _run(
    task: TaskDefinition, payload: Mapping[str, Any], orchestrator: Orchestrator, context: AttemptContext
) -> str:
    """Run the task once, and return the commit of its result."""
    taskdef = {**build_taskdef(task), "retryCount": 0, "timeoutSeconds": 0, "responseTimeoutSeconds": 10**8}
    orchestrator.register_taskdefs([taskdef])
    inputs = {name: f"${{workflow.input.{name}}}" for name in payload}
    step = {"name": task.name, "taskReferenceName": _REFERENCE, "type": "SIMPLE", "inputParameters": inputs}
    orchestrator.register_workflow(
        {"name": _WORKFLOW, "version": 1, "schemaVersion": 2, "ownerEmail": task.owner_email, "tasks": [step]}
    )
    orchestrator.start_workflow(_WORKFLOW, input=dict(payload))
    [assignment] = orchestrator.poll(task.name, worker_id=_WORKFLOW, count=1, wait_seconds=0)
    context = replace(context, orchestrator=orchestrator, recompute=Recompute(steps=frozenset({_REFERENCE})))
    outcome = Executor({task.name: task}, context, _WORKFLOW, mask=context.mask).execute(assignment).outcome
    if outcome.status != "COMPLETED":
        raise RuntimeConfigError(
            f"the step did not complete again: {context.mask(outcome.reason or outcome.status)}"
        )
    return str((outcome.output or {})["workspace"]["ref"])


def describe_differences(before: Provenance, now: Provenance) -> list[str]:
    """Return how code and environment differ from a publication's, one line each.  What is unknown is no difference."""
    pairs = {
        "code": (before.code, now.code),
        "packages": (before.packages, now.packages),
        "runtime": (before.runtime, now.runtime),
        "image": (before.image, now.image),
    }
    return [
        f"{name}: {old} then, {new or 'none'} now" for name, (old, new) in pairs.items() if old and old != new
    ]
