"""Changes a branch on a user's behalf: merges another ref into it, restores an old state of it, or deletes it.

A merge has two parents, so that the same branch can be merged again later.  It is made on a hidden branch at the target's
head, and from there it reaches the target like every publication.  The commit that lakeFS sees as the source of that
second merge therefore has the target's own actions: neither a missing fence file nor other actions on the merged branch
can get past the target's fence and gates.  The rule: neither a merge nor a restore changes anything in
`_lakefs_actions/`.

A branch is never moved: a restore is a new commit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from perago.errors import HeadMoved, LakeNotFound, LakeRefused, NothingToCommit, RuntimeConfigError
from perago.lake.base import Change, Changes, Commit, ReadableLake, Ref
from perago.protocol.metadata import MERGED_BRANCH, MERGED_COMMIT, RESTORED_COMMIT
from perago.protocol.paths import ACTIONS, in_actions
from perago.protocol.publication import StagedWorkspace
from perago.protocol.refusal import made_by
from perago.protocol.run_steps import MARKER_PATH
from perago.runtime.branch_commit import BranchCommit
from perago.runtime.lake_lookup import (
    INTERNAL_NAME_PREFIX,
    all_changes,
    describe_missing_object,
    has_marker,
)

MOST_COUNTED = 10_000
"""The maximum number of changes that are counted for a message."""
LONGEST_WALK = 1000
"""The maximum number of commits that are read from a branch to find out which it shares with another one."""
_AT_ONCE = 8
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class StagedMerge:
    """A merge on a hidden branch, still to be published.  `changes` is what it changes on the target branch.

    `staged` is None if the ref was merged already.  There may be a staged merge without changes: if the target got the
    same ones in another way, the merge still records that, so that the next one compares with this ref.
    """

    commit: BranchCommit
    source: str
    head: str
    merged: str
    message: str
    changes: Changes = Changes((), False)  # noqa: RUF009 - immutable
    left_out: Sequence[str] = ()
    """The actions that the merged ref has changed, which stay as they are on the target branch."""
    staged: StagedWorkspace | None = None

    def publish(self) -> str:
        """Merge into the target branch, and return the new commit.

        Raises `LakeRefused` if the branch has moved since the merge was staged.
        """
        assert self.staged is not None  # noqa: S101 - the ref was not merged before
        metadata = {MERGED_BRANCH: self.source, MERGED_COMMIT: self.merged}
        with _naming_the_head(self.commit, self.head):
            return self.commit.publish(self.staged, self.head, self.message, metadata=metadata, squash=False)


@contextmanager
def stage_merge(
    commit: BranchCommit, source: str, message: str | None, *, options: Sequence[str] = ()
) -> Iterator[StagedMerge]:
    """Merge a ref into a hidden branch at the target's head.

    Raises `LakeRefused` for a conflict, with the paths and a command that settles it.  `options` are that command's
    options for the servers.
    """
    lake, repository = commit.lake, commit.repository
    head, merged = lake.head(repository, commit.branch).id, lake.commit_at(repository, source).id
    text = message or f"merge of {source} into {commit.branch}"
    # The ref may move while the user is asked: what is merged is the commit that was shown.
    with commit.staging(merged) as pinned, commit.staging(head) as side:
        try:
            commit.merge_into_staging(pinned, side, head, text)
        except NothingToCommit:
            yield StagedMerge(commit, source, head, merged, text)
            return
        except HeadMoved as conflict:
            raise LakeRefused(_describe_conflict(commit, source, (merged, head), options)) from conflict
        left_out = _put_back_actions(commit, side, head)
        staged = StagedWorkspace(repository, side, lake.head(repository, side).id)
        changes = lake.changes(repository, head, staged.commit, limit=MOST_COUNTED)
        yield StagedMerge(commit, source, head, merged, text, changes, left_out, staged)


def _put_back_actions(commit: BranchCommit, side: str, head: str) -> list[str]:
    """Undo what the merge has changed in `_lakefs_actions/`, and return those paths."""
    lake, repository = commit.lake, commit.repository
    merged = lake.head(repository, side).id
    actions = list(all_changes(lake, (repository, merged, head), ACTIONS))
    if actions:
        _apply(commit, side, head, actions)
        commit.stage(side, f"keep the actions of {commit.branch}")
    return [change.path for change in actions]


def _describe_conflict(
    commit: BranchCommit, source: str, heads: tuple[str, str], options: Sequence[str]
) -> str:
    both = commit.lake.conflicts(commit.repository, *heads, _MOST_NAMED + 1)
    shown = ", ".join(repr(path) for path in both[:_MOST_NAMED]) or "the same files"
    more = " and more" if len(both) > _MOST_NAMED else ""
    take = [
        "perago",
        "restore",
        commit.repository,
        source,
        *both[:_MOST_NAMED],
        "--branch",
        commit.branch,
        *options,
    ]
    return (
        f"{source!r} conflicts with branch {commit.branch!r} of {commit.repository!r}: both have changed {shown}{more} "
        f"since they parted; nothing was merged: make such files the same on both, for example with "
        f"`{shlex.join(take)}`, then merge again"
    )


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The changes that bring back the state at the commit `source` on a branch whose head is `head`."""

    head: str
    source: str
    changes: tuple[Change, ...]


def plan_restore(
    lake: ReadableLake, repository: str, branch: str, ref: str, paths: Sequence[str]
) -> RestorePlan:
    """Compare a branch's head with an old state, at these paths or everywhere.

    Raises an error if a path exists in neither, or if a file would be restored below another file.
    """
    head, source = lake.head(repository, branch).id, lake.commit_at(repository, ref).id
    roots = [path.lstrip("/") for path in paths] or [""]
    found: dict[str, Change] = {}
    for root in roots:
        if root.rstrip("/") + "/" == ACTIONS or in_actions(root):
            raise RuntimeConfigError(
                f"cannot restore {root!r}: it is among lakeFS's actions ({ACTIONS}); use `perago fence` or lakectl for "
                "those"
            )
        there = root
        if root and not any(exists(lake, repository, commit, root) for commit in (head, source)):
            # A slash after a file does no harm.
            there = root.rstrip("/")
            if not any(is_object(lake, repository, commit, there) for commit in (head, source)):
                raise LakeNotFound(describe_missing_object(lake, repository, ref, there))
        found |= {
            change.path: change
            for change in all_changes(lake, (repository, head, source), there)
            if not in_actions(change.path)
        }
    _check_parents(lake, repository, head, found)
    return RestorePlan(head, source, tuple(found.values()))


def restore(commit: BranchCommit, plan: RestorePlan, message: str) -> str:
    """Publish a restore plan, and return the new commit.  Raises `LakeRefused` if the branch has moved."""
    with commit.staging(plan.head) as side:
        _apply(commit, side, plan.source, plan.changes)
        try:
            staged = commit.stage(side, message)
        except NothingToCommit:
            return plan.head
        with _naming_the_head(commit, plan.head):
            metadata = {RESTORED_COMMIT: plan.source}
            return commit.publish(staged, plan.head, message, metadata=metadata)


def _apply(commit: BranchCommit, side: str, source: str, changes: Sequence[Change]) -> None:
    """Make the changed paths on a hidden branch what they are at the commit `source`, without committing."""
    back = [change.path for change in changes if change.kind != "removed"]
    commit.lake.copy(commit.repository, side, source, back)
    gone = [change.path for change in changes if change.kind == "removed"]
    commit.lake.delete(commit.repository, side, gone)


def _check_parents(lake: ReadableLake, repository: str, head: str, found: dict[str, Change]) -> None:
    """Raise `RuntimeConfigError` if an object would be restored below a path that is an object itself."""
    parents = {
        path[:at]: path
        for path, change in found.items()
        if change.kind == "added"
        for at, character in enumerate(path)
        if character == "/" and at
    }
    for parent, path in parents.items():
        if parent in found and found[parent].kind == "removed":
            continue
        if is_object(lake, repository, head, parent):
            raise RuntimeConfigError(
                f"cannot restore {path!r}: {parent!r} is a file on the branch, and was a folder then; restore {parent!r} "
                "as a whole"
            )


@contextmanager
def _naming_the_head(commit: BranchCommit, head: str) -> Iterator[None]:
    """Replace a `HeadMoved` with an error that says who moved the branch, and what to do."""
    try:
        yield
    except HeadMoved as moved:
        now = commit.lake.head(commit.repository, commit.branch)
        raise LakeRefused(
            f"branch {commit.branch!r} of {commit.repository!r} moved from {head} to {now.id} meanwhile ({made_by(now)}); "
            f"nothing was {commit.kind.done}: run the command again"
        ) from moved


def exists(lake: ReadableLake, repository: str, ref: str, path: str) -> bool:
    """Return whether there is an object at this path, or a folder with anything in it."""
    folder = path.rstrip("/") + "/"
    return is_object(lake, repository, ref, path) or bool(lake.folder(repository, ref, folder, limit=1).rows)


def is_object(lake: ReadableLake, repository: str, ref: str, path: str) -> bool:
    """Return whether there is an object at exactly this path."""
    try:
        lake.stat(repository, ref, path)
    except LakeNotFound:
        return False
    return True


def own_commits(lake: ReadableLake, repository: str, branch: str) -> list[Commit]:
    """Return a branch's newest commits down to the first one that another branch or a tag has too.

    Another branch has a commit if it is on it or was merged into it.  Only its newest commits are read, so the result
    may name commits that are safe, but never leaves out one that would be lost.  Perago's internal branches do not count,
    because they come and go.
    """
    commits = list(lake.log(repository, branch, LONGEST_WALK))
    at = {commit.id: number for number, commit in enumerate(commits)}

    def first_shared(head: str) -> int:
        best = len(commits)
        for commit in lake.log(repository, head, LONGEST_WALK):
            merged = (*commit.parents, commit.metadata.get(MERGED_COMMIT, ""))
            best = min([best, *(at[one] for one in (commit.id, *merged) if one in at)])
            if commit.id in at:
                break
        return best

    others = [ref for ref in user_branches(lake, repository) if ref.name != branch]
    tagged = [at[tag.commit] for tag in lake.tags(repository, "") if tag.commit in at]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        shared = list(pool.map(first_shared, {ref.commit: None for ref in others}))
    return commits[: min([len(commits), *tagged, *shared])]


def remove_marker(commit: BranchCommit) -> str | None:
    """Remove the marker of a run from an ordinary branch.  Returns the new commit, or None if there is no marker.

    Somebody has moved the branch to a commit of a run, or picked one, and now no merge into the branch succeeds.
    """
    head = commit.lake.head(commit.repository, commit.branch).id
    if not has_marker(commit.lake, commit.repository, head):
        return None
    message = f"remove the marker of a run from {commit.branch}"
    with commit.staging(head) as side, _naming_the_head(commit, head):
        commit.lake.delete(commit.repository, side, [MARKER_PATH])
        return commit.publish(commit.stage(side, message), head, message)


def user_branches(lake: ReadableLake, repository: str) -> list[Ref]:
    """Return the branches of a repository that are not Perago's internal ones, `main` first."""
    found = [ref for ref in lake.branches(repository, "") if not ref.name.startswith(INTERNAL_NAME_PREFIX)]
    return sorted(found, key=lambda ref: (ref.name != "main", ref.name))
