"""What a commit says about who made it: `perago.*` metadata, messages, digests, and the `reuse` ledger.

Staging and publish commits carry the same set of names, because after a relocation the staging commit is the
head.  A recorded result makes the publish commit the ledger of effectively-once: it is written in the same
instant as the publication itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from perago.protocol.attempt import Attempt
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
    SCHEDULED,
    STAGING_BASE,
    STAGING_BRANCH,
    STAGING_COMMIT,
    SUPERSEDES,
    TARGET_BRANCH,
    TASK_ID,
    WRITES,
)
from perago.protocol.publication import Commit, StagedWorkspace, Workspace
from perago.protocol.view import View

MAX_RECORDED_RESULT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Signature:
    """Everything that signs the commits of one execution, whichever commit it is."""

    attempt: Attempt
    execution_id: str
    workspace: Workspace
    input_digest: str

    def staging(self, branch: str, *, base: str, fence: str) -> dict[str, str]:
        """Metadata of the commit on a staging branch made at `base`."""
        return self._metadata("try", StagedWorkspace(self.workspace.repository, branch, ""), base, "", fence)

    def publication(
        self, staged: StagedWorkspace, *, expected_head: str, supersedes: str, fence: str
    ) -> dict[str, str]:
        """Metadata of the commit that the merge of `staged` makes."""
        return self._metadata("confirm", staged, expected_head, supersedes, fence)

    def message(self, verb: Literal["stages", "publishes"]) -> str:
        """A commit message for people."""
        attempt = self.attempt
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
            TASK_ID: self.attempt.task_id,
            RETRY_COUNT: str(self.attempt.retry_count),
            SCHEDULED: str(self.attempt.scheduled_time),
            INPUT_REF: self.workspace.ref,
            TARGET_BRANCH: self.workspace.branch,
            PREFIX: "/" + self.workspace.prefix.rstrip("/"),
            WRITES: json.dumps(self.workspace.view.write_roots, ensure_ascii=False),
            STAGING_BRANCH: staged.branch,
            STAGING_COMMIT: staged.commit,
            EXPECTED_HEAD: expected_head,
            SUPERSEDES: supersedes,
            EXECUTION_ID: self.execution_id,
            DIGEST: self.input_digest,
            FENCE: fence,
        }


def input_digest(
    *, task_name: str, version: str, params: Mapping[str, Any], input_ref: str, view: View
) -> str:
    """What makes two attempts' work the same work; a task that sees its whole prefix has the digest it always had."""
    narrowed = [[view.roots, view.write_roots]] if view.declared else []
    canonical = json.dumps(
        [task_name, version, params, input_ref, view.prefix, *narrowed],
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def recordable(result: Mapping[str, Any]) -> str | None:
    """The result as the ledger keeps it, or None where it is too large for commit metadata."""
    text = json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    return text if len(text.encode("utf-8", "surrogatepass")) <= MAX_RECORDED_RESULT else None


def recorded_result(head: Commit, signature: Signature) -> str | None:
    """The result that the head records for this very work, or None.

    A commit counts only if its first parent is its own expected head: one that landed elsewhere, past a soft
    fence, was reported as FAILED.
    """
    return recorded_work(head, signature) if is_in_place(head) else None


def recorded_work(commit: Commit, signature: Signature) -> str | None:
    """The result that a commit records for this very work, or None, wherever the commit landed."""
    said = commit.metadata
    same_work = (
        said.get(PHASE) == "confirm"
        and said.get(KEY) == signature.attempt.logical_task_key
        and said.get(DIGEST) == signature.input_digest
    )
    return said.get(RESULT) if same_work else None


def is_in_place(commit: Commit) -> bool:
    """Whether a publication landed on the head that its publisher had decided for."""
    return commit.first_parent is not None and commit.metadata.get(EXPECTED_HEAD) == commit.first_parent


def base_of(commit: Commit) -> str:
    """The commit that a publication was staged on; where it does not say, that is its expected head."""
    return commit.metadata.get(STAGING_BASE) or commit.metadata.get(EXPECTED_HEAD, "")


def is_by_attempt(commit: Commit, attempt: Attempt) -> bool:
    """Whether an execution of this very attempt made the commit.

    Conductor's `rerun` keeps the task id, so the scheduled time must be the same too; commits of old versions do not
    tell it.
    """
    said = commit.metadata
    return said.get(TASK_ID) == attempt.task_id and said.get(SCHEDULED, str(attempt.scheduled_time)) == str(
        attempt.scheduled_time
    )


def is_publication_of(commit: Commit, staged: StagedWorkspace) -> bool:
    """Whether `commit` is what publishing `staged` made: C itself, or the merge of C, whatever it landed on."""
    return staged.commit in (commit.id, commit.metadata.get(STAGING_COMMIT))
