"""A run as one transaction: the run branch, its marker, and which commits on it belong to the run.

    origin ── M ── o ── o ── R        the run branch: M has the marker, o and R are publications of the run's steps
       └─────────────────────── P     the target branch: P is the whole run, as one commit, without the marker

`perago_open` creates the run branch with the marker.  `perago_publish` publishes R.  Between the two, readers of the
target see nothing of the run.

The marker is a lakeFS action: it refuses every merge into a branch that is not a run branch.  lakeFS reads actions from
the source commit, and every commit made on top of M contains the marker, so nobody can merge an unpublished run by
accident, from whichever branch.  The embedded lake applies the same rule.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from perago.protocol.metadata import INPUT_REF, KEY, SCHEDULED, TASK_ID
from perago.protocol.names import RUN, is_opened_by, is_run_branch
from perago.protocol.paths import ACTIONS
from perago.protocol.publication import Commit

RUN_KEY = "perago-run"
"""The logical task key of M.  No step of a workflow has it, so `replace` never covers M."""

UNPUBLISHED = "perago run:"
"""The beginning of the reason for which a merge of an unpublished run is refused."""

MOST_STEPS = 256
"""The maximum number of steps that the commit of a published run names."""

MARKER_PATH = f"{ACTIONS}perago-run.yaml"

REFUSAL = (
    f"{UNPUBLISHED} this commit belongs to a run that is not published, and only the run itself may publish it; "
    f"if the target branch has {MARKER_PATH}, `perago branch REPO BRANCH --remove-marker` removes it"
)

MARKER_TEXT = f"""\
name: perago run
description: refuses to merge a run that is not published
on:
  pre-merge:
hooks:
  - id: unpublished_run
    type: lua
    properties:
      script: |
        if action.branch_id:sub(1, {len(RUN)}) ~= "{RUN}" then
          error("{REFUSAL}")
        end
"""


def may_merge_marked(target: str) -> bool:
    """Return whether a commit with the marker may be merged into a branch of this name."""
    return target.startswith(RUN)


def is_run_marker(path: str, content: bytes, branch: str) -> bool:
    """Return whether an action on a run branch is exactly the marker, which refuses no merge into that branch."""
    return path == MARKER_PATH and content == MARKER_TEXT.encode() and is_run_branch(branch)


def marker_commit(commits: Iterable[Commit], branch: str) -> Commit | None:
    """Return M among the commits of a run branch, newest first, or None if it is not among them.

    M is signed by the attempt after which the branch is named.  A branch that was moved to a run's commit has the M of that
    run in its history, and so has every run that starts there.
    """
    return next((commit for commit in commits if _opens(commit, branch)), None)


def _opens(commit: Commit, branch: str) -> bool:
    signed = commit.metadata
    return signed.get(KEY) == RUN_KEY and is_opened_by(
        branch, signed.get(TASK_ID, ""), signed.get(SCHEDULED, "")
    )


def foreign_commit(commits: Sequence[Commit], workflow_ids: Collection[str]) -> Commit | None:
    """Return the newest of these commits that no step of these workflows made, or None."""
    for commit in commits:
        workflow, slash, _ = commit.metadata.get(KEY, "").partition("/")
        if not slash or workflow not in workflow_ids:
            return commit
    return None


def steps_text(commits: Sequence[Commit]) -> str:
    """Return the steps that made these commits, newest first, as JSON: the oldest first, each with its commit.

    Of more than `MOST_STEPS`, only the newest are named: metadata should stay small, and the run's tag leads to all of them.
    """
    newest = reversed(commits[:MOST_STEPS])
    named = [[commit.metadata[KEY].partition("/")[2], commit.id] for commit in newest]
    return json.dumps(named, ensure_ascii=False)


def origin_of(marked: Commit) -> str:
    """Return the commit from which a run started, given M: its parent.  Empty if M was not made on top of its input."""
    start = marked.metadata.get(INPUT_REF, "")
    return start if marked.first_parent == start else ""
