"""Signs commits with `perago.*` metadata, messages and digests, and reads the `reuse` ledger from signed commits.

Staging and publish commits have the same keys, because after a relocation the staging commit is the head.  A publish
commit with a recorded result is the ledger entry that makes a task run effectively once: the result is written
atomically with the publication itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perago.protocol.attempt import Attempt
from perago.protocol.ledger import Work
from perago.protocol.metadata import (
    DIGEST,
    EXECUTION_ID,
    EXPECTED_HEAD,
    FENCE,
    INPUT_REF,
    KEY,
    PHASE,
    PREFIX,
    RESULT,
    RETRY_COUNT,
    RUN_COMMIT,
    RUN_ENTRIES,
    RUN_STEPS,
    SCHEDULED,
    STAGING_BASE,
    STAGING_BRANCH,
    STAGING_COMMIT,
    SUPERSEDES,
    TARGET_BRANCH,
    TASK_ID,
    WRITES,
)
from perago.protocol.provenance import UNKNOWN, Provenance
from perago.protocol.publication import Commit, StagedWorkspace, Workspace
from perago.protocol.view import View

MAX_RECORDED_RESULT = 64 * 1024
NOT_SIGNED = "not signed"
"""The author of a commit that says nothing about who made it."""
_MOST_NAMED = 10
"""The number of steps that the message of a published run names; its metadata has all of them."""
_SHORT = 12


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The run that a publication contains: its last commit and, as JSON, its steps with their commits and its entries."""

    commit: str
    steps: str
    entries: str = "[]"
    made_with: Provenance = UNKNOWN
    """What all steps of the run have in common."""

    def message(self, attempt: Attempt, verb: str) -> str:
        """Return a commit message that names the run, its workflow, and its steps with their commits."""
        named = [f"{step} {commit[:_SHORT]}" for step, commit in json.loads(self.steps)]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        run = f"run {attempt.workflow_name}".rstrip()
        return (
            f"perago: {verb} the {run} (workflow {attempt.workflow_instance_id}): "
            f"{', '.join(named[:_MOST_NAMED])}{more}"
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """The values with which one execution signs its commits."""

    attempt: Attempt
    execution_id: str
    workspace: Workspace
    input_digest: str
    run: RunSummary | None = None
    """Set only if the publication contains a whole run."""
    work: Work | None = None
    """Set if the publication is an entry of the ledger."""
    made_with: Provenance = UNKNOWN
    """The code and the environment of the attempt; for a run, what its steps have in common."""

    def staging(self, branch: str, *, base: str, fence: str, recorded: str | None = None) -> dict[str, str]:
        """Return the metadata for the commit on a staging branch that was created at `base`.

        After a relocation that commit is the publication, so it contains the recorded result, too.
        """
        staged = StagedWorkspace(self.workspace.repository, branch, "")
        metadata = self._metadata("try", staged, base, "", fence)
        return metadata if recorded is None else {**metadata, RESULT: recorded}

    def publication(
        self, staged: StagedWorkspace, *, expected_head: str, supersedes: str, fence: str
    ) -> dict[str, str]:
        """Return the metadata for the commit that merging `staged` creates."""
        return self._metadata("confirm", staged, expected_head, supersedes, fence)

    def identity(self) -> dict[str, str]:
        """Return the metadata that names the execution, for a commit that is no publication."""
        return {
            TASK_ID: self.attempt.task_id,
            RETRY_COUNT: str(self.attempt.retry_count),
            SCHEDULED: str(self.attempt.scheduled_time),
            EXECUTION_ID: self.execution_id,
        }

    def message(self, verb: Literal["stages", "publishes"]) -> str:
        """Return a human-readable commit message."""
        attempt = self.attempt
        if self.run is not None:
            return self.run.message(attempt, verb)
        return (
            f"perago: {attempt.task_name} {verb} /{self.workspace.prefix.rstrip('/')} "
            f"(workflow {attempt.workflow_instance_id}, step {attempt.reference_task_name}, retry {attempt.retry_count})"
        )

    def _metadata(
        self, phase: str, staged: StagedWorkspace, expected_head: str, supersedes: str, fence: str
    ) -> dict[str, str]:
        return {
            PHASE: phase,
            KEY: self.attempt.logical_task_key,
            **self.identity(),
            INPUT_REF: self.workspace.ref,
            TARGET_BRANCH: self.workspace.branch,
            PREFIX: "/" + self.workspace.prefix.rstrip("/"),
            WRITES: json.dumps(self.workspace.view.write_roots, ensure_ascii=False),
            STAGING_BRANCH: staged.branch,
            STAGING_COMMIT: staged.commit,
            EXPECTED_HEAD: expected_head,
            SUPERSEDES: supersedes,
            DIGEST: self.input_digest,
            FENCE: fence,
            **self.made_with.metadata(),
            **({} if self.work is None else self.work.metadata()),
            **({} if self.run is None else self._run_metadata(self.run)),
        }

    @staticmethod
    def _run_metadata(run: RunSummary) -> dict[str, str]:
        return {RUN_COMMIT: run.commit, RUN_STEPS: run.steps, RUN_ENTRIES: run.entries}


def input_digest(
    *, task_name: str, version: str, params: Mapping[str, Any], input_ref: str, view: View
) -> str:
    """Return a digest of the task, its version, its params, its input and its view.

    Two attempts with the same digest do the same work.  If a task declares neither reads nor writes, the digest is the
    same as in earlier Perago versions.
    """
    narrowed = [[view.roots, view.write_roots]] if view.declared else []
    canonical = json.dumps(
        [task_name, version, params, input_ref, view.prefix, *narrowed],
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def encode_result(result: Mapping[str, Any]) -> str | None:
    """Return the result as text for the ledger, or None if it is too large for commit metadata."""
    text = json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode("utf-8", "surrogatepass")) <= MAX_RECORDED_RESULT else None


def recorded_result(head: Commit, signature: Signature) -> str | None:
    """Return the result recorded in the head if it is a publication of the same work, else None.

    Also returns None if the commit's first parent is not its expected head.  In that case it landed elsewhere, because
    the fence was soft, and was reported as FAILED.
    """
    return recorded_result_anywhere(head, signature) if is_in_place(head) else None


def recorded_result_anywhere(commit: Commit, signature: Signature) -> str | None:
    """Return the result recorded in a commit if it is a publication of the same work, wherever it landed, else None."""
    metadata = commit.metadata
    same_work = (
        metadata.get(PHASE) == "confirm"
        and metadata.get(KEY) == signature.attempt.logical_task_key
        and metadata.get(DIGEST) == signature.input_digest
    )
    return metadata.get(RESULT) if same_work else None


def is_in_place(commit: Commit) -> bool:
    """Return whether a publication landed on the head that its publisher expected."""
    return commit.first_parent is not None and commit.metadata.get(EXPECTED_HEAD) == commit.first_parent


def base_of(commit: Commit) -> str:
    """Return the commit on which a publication was staged, or its expected head if that is not recorded."""
    return commit.metadata.get(STAGING_BASE) or commit.metadata.get(EXPECTED_HEAD, "")


@dataclass(frozen=True, slots=True)
class Maker:
    """The attempt that made a commit, according to the commit's metadata."""

    workflow_id: str
    reference: str
    task_id: str
    retry_count: int
    input_ref: str = ""


def maker_of(commit: Commit) -> Maker | None:
    """Return the attempt that made a commit, or None if the commit's metadata names no attempt."""
    metadata = commit.metadata
    workflow_id, slash, reference = metadata.get(KEY, "").partition("/")
    if not slash or TASK_ID not in metadata:
        return None
    retry = metadata.get(RETRY_COUNT, "0")
    return Maker(
        workflow_id,
        reference,
        metadata[TASK_ID],
        int(retry) if retry.isdecimal() else 0,
        metadata.get(INPUT_REF, ""),
    )


def author_of(commit: Commit) -> str:
    """Return who made a commit, for people: a step of a workflow, a command of Perago, or a user of the lake."""
    if (maker := maker_of(commit)) is not None:
        return f"step {maker.reference} of workflow {maker.workflow_id}"
    key = commit.metadata.get(KEY, "")
    if key.startswith("perago-"):
        return key.replace("-", " ", 1)
    return commit.committer or NOT_SIGNED


def is_by_attempt(commit: Commit, attempt: Attempt) -> bool:
    """Return whether an execution of this attempt made the commit.

    Conductor's `rerun` keeps the task id, so the scheduled time must match too.  Commits made by old versions do not
    have one, and match by task id alone.
    """
    metadata = commit.metadata
    return metadata.get(TASK_ID) == attempt.task_id and metadata.get(
        SCHEDULED, str(attempt.scheduled_time)
    ) == str(attempt.scheduled_time)


def is_publication_of(commit: Commit, staged: StagedWorkspace) -> bool:
    """Return whether publishing `staged` produced `commit`.

    That is the case if `commit` is the staged commit itself, or the merge of that commit, wherever the merge landed.
    """
    return staged.commit in (commit.id, commit.metadata.get(STAGING_COMMIT))
