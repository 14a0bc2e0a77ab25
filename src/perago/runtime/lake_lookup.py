"""Looks things up in a lake: names that do not exist, the head of REPO[@BRANCH], runs, and changes between commits.

A suggestion never hides the original error: if the lake cannot be queried, that error is raised unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from perago.errors import LakeError, LakeNotFound, RuntimeConfigError
from perago.lake.base import Change, Commit, ReadableLake
from perago.protocol.metadata import KEY
from perago.protocol.names import REPLACED, is_run_branch
from perago.protocol.run_steps import MARKER_PATH
from perago.protocol.suggestions import did_you_mean, listed, nearest

INTERNAL_NAME_PREFIX = "perago-"
"""Prefix of the names of internal branches and tags."""
_NONE = "the lake holds none"
_MOST_TAGS = 500
_PAGE = 1000
_TAGS_AT_ONCE = 8
_MOST_OBJECTS = 10_000
"""Maximum number of objects to list when looking for names to suggest."""


@contextmanager
def suggesting_existing_names(
    lake: ReadableLake, repository: str, ref: str, *, remedy: tuple[str, str] | None = None
) -> Iterator[None]:
    """Replace a `LakeNotFound` raised in this block with one that says what is missing and what exists.

    The block contains calls about one ref in one repository.  `remedy` is a pair of commands: one creates the
    repository, the other the ref.
    """
    try:
        yield
    except LakeNotFound as missing:
        try:
            message, which = _describe_missing(lake, repository, ref)
        except LakeError:
            raise missing from None
        if message is None:
            raise
        hint = f"`{remedy[which]}` makes it" if remedy is not None else ""
        if not hint and message.endswith(_NONE):
            hint = "`perago put REPO FOLDER --create` makes one"
        stop = "" if not hint else " " if message.endswith("?") else "; "
        raise LakeNotFound(f"{message}{stop}{hint}") from missing


def describe_empty_folder(lake: ReadableLake, repository: str, ref: str, prefix: str) -> str:
    """Return a sentence saying that a folder is empty and naming the folders that exist."""
    near: list[str] = []
    folder = prefix.rstrip("/")
    while folder and not near:
        folder = folder.rpartition("/")[0]
        near = folders_in(lake, repository, ref, f"{folder}/" if folder else "")
    if not near and not prefix:
        return f"there is nothing at {ref} of repository {repository!r}; `perago put` brings files in"
    return f"there is nothing below {prefix!r} at {ref} of repository {repository!r}" + (
        f"; folders there: {listed(near)}{did_you_mean(prefix, near)}"
        if near
        else "; there are no folders at all"
    )


def describe_missing_object(lake: ReadableLake, repository: str, ref: str, path: str) -> str:
    """Return a sentence saying that an object is missing and naming the objects in its folder.

    If the path is itself a folder, the sentence says so and names the objects in it.
    """
    where = f"at {ref} of repository {repository!r}"
    inside = (
        [entry.path for entry in islice(lake.list(repository, ref, f"{path}/"), _MOST_OBJECTS)]
        if path
        else []
    )
    if inside:
        return f"{path!r} is a folder {where}, not an object; it holds {listed(inside)}"
    return f"there is no object {path!r} {where}{_objects_near(lake, repository, ref, path)}"


def _objects_near(lake: ReadableLake, repository: str, ref: str, path: str) -> str:
    above = path.rpartition("/")[0]
    prefix = f"{above}/" if above else ""
    beside = [entry.path for entry in islice(lake.list(repository, ref, prefix), _MOST_OBJECTS)]
    if not beside:
        return (
            f"; {describe_empty_folder(lake, repository, ref, prefix)}"
            if prefix
            else "; it holds none at all"
        )
    return f"; there are: {listed(beside)}{did_you_mean(path, beside)}"


def folders_in(lake: ReadableLake, repository: str, ref: str, prefix: str) -> list[str]:
    """Return the folders directly below a prefix, each with a trailing slash."""
    found: dict[str, None] = {}
    for entry in islice(lake.list(repository, ref, prefix), _MOST_OBJECTS):
        inner, slash, _ = entry.path[len(prefix) :].partition("/")
        if slash:
            found[f"{prefix}{inner}/"] = None
    return list(found)


def _describe_missing(lake: ReadableLake, repository: str, ref: str) -> tuple[str | None, int]:
    """Return a message about what is missing, and whether that is the repository (0) or the ref (1).

    The message is None if both exist.
    """
    repositories = list(lake.repositories())
    if repository not in repositories:
        there_are = f"there are: {listed(repositories)}{did_you_mean(repository, repositories)}"
        return (
            f"there is no repository {repository!r}; {there_are if repositories else _NONE}",
            0,
        )
    if _exists(lake, repository, ref):
        return None, 1
    names = [one.name for one in [*lake.branches(repository, ""), *lake.tags(repository, "")]]
    there = [name for name in names if not name.startswith(INTERNAL_NAME_PREFIX)]
    missing = f"repository {repository!r} has no branch, tag or commit {ref!r}"
    return f"{missing}; there are: {listed(there)}{did_you_mean(ref, there)}", 1


def _exists(lake: ReadableLake, repository: str, ref: str) -> bool:
    try:
        lake.commit_at(repository, ref)
    except LakeNotFound:
        return False
    return True


def expect_workspace(lake: ReadableLake, workspace: str, *, new_repositories: Collection[str]) -> None:
    """Raise an error if the workspace does not exist.

    A repository in `new_repositories` is still to be created, so its main branch is accepted too.
    """
    repository, _, branch = workspace.partition("@")
    if repository in new_repositories and branch in ("", "main"):
        return
    if repository in new_repositories:
        raise RuntimeConfigError(
            f"--workspace {workspace}: a new repository has only the branch main; use {repository}"
        )
    if (close := nearest(repository, new_repositories)) is not None and repository not in lake.repositories():
        raise RuntimeConfigError(
            f"--workspace {workspace}: there is no repository {repository!r}; did you mean {close!r}, which is imported?"
        )
    head_of(lake, workspace)


def head_of(lake: ReadableLake, workspace: str, *, with_ref: bool = True) -> dict[str, str]:
    """Return the `workspace` of a workflow input for REPO[@BRANCH], at the branch's current head.

    The default branch is `main`.  Without `with_ref`, only the branch is named; it must exist nevertheless.
    """
    repository, _, branch = workspace.partition("@")
    branch = branch or "main"
    with suggesting_existing_names(lake, repository, branch):
        head = lake.head(repository, branch).id
    named = {"repository": repository, "branch": branch}
    return named | {"ref_type": "commit", "ref": head} if with_ref else named


@dataclass(frozen=True, slots=True)
class ReplacedCommit:
    """A commit that a retry took off its branch, and the tag that keeps it."""

    commit: Commit
    tag: str

    @property
    def signed(self) -> bool:
        """True if a task had made the commit; False if somebody may have made it by hand."""
        return KEY in self.commit.metadata


def replaced_commits(
    lake: ReadableLake,
    repository: str,
    shown: Collection[str],
    read: Callable[[str], Commit] | None = None,
) -> tuple[Mapping[str, list[ReplacedCommit]], int]:
    """Return the replaced commits, newest first, keyed by the commit in `shown` on which they were made.

    Also returns the number of tags that were left out because there are too many.  `read` returns a commit by its id.
    """
    read = read or (lambda commit: lake.commit_at(repository, commit))
    on_branch, tags = frozenset(shown), lake.tags(repository, REPLACED)
    with ThreadPoolExecutor(_TAGS_AT_ONCE) as pool:
        kept = list(pool.map(lambda tag: ReplacedCommit(read(tag.commit), tag.name), tags[:_MOST_TAGS]))
    found: dict[str, list[ReplacedCommit]] = {}
    for one in sorted(kept, key=lambda one: one.commit.created, reverse=True):
        if one.commit.first_parent in on_branch and one.commit.id not in on_branch:
            found.setdefault(str(one.commit.first_parent), []).append(one)
    return found, max(0, len(tags) - _MOST_TAGS)


def check_no_run(lake: ReadableLake, repository: str, ref: str) -> None:
    """Raise `RuntimeConfigError` if a ref belongs to a run that is not published."""
    if has_marker(lake, repository, ref):
        raise RuntimeConfigError(
            f"{ref!r} of {repository!r} belongs to a run, and only the run's own step publishes it, whole: `perago show` "
            "names its workflow and how to go on with it"
        )


def has_marker(lake: ReadableLake, repository: str, ref: str) -> bool:
    """Return whether a ref has the marker of an unpublished run."""
    try:
        lake.stat(repository, ref, MARKER_PATH)
    except LakeNotFound:
        return False
    return True


def check_no_internal_name(branch: str) -> None:
    """Raise `RuntimeConfigError` if a branch name belongs to Perago."""
    if branch.startswith(INTERNAL_NAME_PREFIX):
        if is_run_branch(branch):
            raise RuntimeConfigError(
                f"{branch!r} is the branch of a run, and only the run's own steps write to it; `perago sweep` removes it "
                "once the run is published; name another branch"
            )
        raise RuntimeConfigError(
            f"{branch!r} is one of Perago's own branches: `perago sweep` removes those of attempts that are over; name "
            "another branch"
        )


def all_changes(lake: ReadableLake, between: tuple[str, str, str], root: str) -> Iterator[Change]:
    """Yield the changes at or below a root between two commits of a repository, in order.

    The root `plays` is an object or a folder, and never includes `plays-old`.
    """
    if root and not root.endswith("/"):
        # The object itself sorts before all other paths with this prefix.
        first = lake.changes(*between, prefix=root, limit=1).rows
        yield from (change for change in first if change.path == root)
        root += "/"
    after, more = "", True
    while more:
        page = lake.changes(*between, prefix=root, after=after, limit=_PAGE)
        yield from page.rows
        more, after = page.more, page.rows[-1].path if page.rows else ""
