"""Finds the commit that last wrote a file or a folder, by walking a branch from its newest commit.

Only first parents are followed, so a merge counts as one commit, which wrote all that it brought.  Every commit is compared
with its first parent, at this path only.  A binary search would be wrong: a path that was changed and changed back
is equal at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeVar

from perago.errors import LakeNotFound
from perago.lake.base import Commit, ReadableLake
from perago.runtime.lake_lookup import describe_missing_object

MOST_FILES = 10_000
"""The maximum number of files of a folder that are looked up one by one."""
_AT_ONCE = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Blame:
    """The last writer of a path.  A folder's path ends in `/`.

    `commit` is None if the path was not changed in the newest `searched` commits.
    """

    path: str
    kind: Literal["file", "folder", "deleted"]
    commit: Commit | None
    searched: int


def find_last_writer(lake: ReadableLake, repository: str, ref: str, path: str, *, limit: int) -> Blame:
    """Return the newest commit that changed a file, or anything in a folder, or that deleted the path.

    At most `limit` commits are searched.  Raises `LakeNotFound` if the path is not at `ref`, and was not deleted by one
    of these commits.
    """
    head = lake.commit_at(repository, ref).id
    kind, path = kind_of_path(lake, repository, head, path)
    searched = 0
    log = lake.log(repository, head, limit)
    for commit, wrote in walk(log, lambda one: _changes(lake, repository, one, path)):
        searched += 1
        if wrote:
            return Blame(path, kind, commit, searched)
    if kind == "deleted":
        raise LakeNotFound(describe_missing_object(lake, repository, ref, path))
    return Blame(path, kind, None, searched)


def find_file_writers(
    lake: ReadableLake, repository: str, ref: str, prefix: str, *, limit: int
) -> dict[str, Commit | None]:
    """Return the last writer of each file below a prefix, at most `MOST_FILES` of them, sorted by path.

    It is None for a file that was not changed in the newest `limit` commits.
    """
    head = lake.commit_at(repository, ref).id
    files = [entry.path for entry in islice(lake.list(repository, head, prefix), MOST_FILES)]
    found: dict[str, Commit | None] = dict.fromkeys(files)
    left = set(files)
    # The newest commits usually wrote most files, so stop as soon as every file has its writer.
    log = lake.log(repository, head, limit)
    for commit, paths in walk(log, lambda one: _changed_paths(lake, repository, one, prefix)):
        for path in left.intersection(paths):
            found[path] = commit
        left.difference_update(paths)
        if not left:
            break
    return found


def walk(commits: Iterator[Commit], look: Callable[[Commit], T]) -> Iterator[tuple[Commit, T]]:
    """Yield a branch's commits, newest first, each with the result of `look`, which is called on several threads."""
    size = 1
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # Begin with one commit, since the newest one is often the last writer.
        while batch := list(islice(commits, size)):
            yield from zip(batch, pool.map(look, batch), strict=True)
            size = _AT_ONCE * 4


def kind_of_path(
    lake: ReadableLake, repository: str, head: str, path: str
) -> tuple[Literal["file", "folder", "deleted"], str]:
    """Return what a path is at a commit, and the path as a listing has it."""
    name = path.rstrip("/")
    is_folder = bool(lake.folder(repository, head, f"{name}/" if name else "", limit=1).rows)
    if name and not (is_folder and path.endswith("/")):
        try:
            return "file", lake.stat(repository, head, name).path
        except LakeNotFound:
            pass
    if is_folder or not name:
        return "folder", f"{name}/" if name else ""
    return "deleted", name


def _changes(lake: ReadableLake, repository: str, commit: Commit, path: str) -> bool:
    """Return whether a commit has changed this file, or anything in this folder."""
    if commit.first_parent is None:
        return next(iter(_first_content(lake, repository, commit, path)), None) is not None
    return next(lake.diff_paths(repository, commit.first_parent, commit.id, [path]), None) is not None


def _changed_paths(lake: ReadableLake, repository: str, commit: Commit, prefix: str) -> set[str]:
    if commit.first_parent is None:
        return set(_first_content(lake, repository, commit, prefix))
    return set(lake.diff_paths(repository, commit.first_parent, commit.id, [prefix]))


def _first_content(lake: ReadableLake, repository: str, commit: Commit, path: str) -> Iterator[str]:
    """Yield the paths at or below `path` in a repository's first commit, which has written all that it holds."""
    if path and not path.endswith("/"):
        try:
            yield lake.stat(repository, commit.id, path).path
        except LakeNotFound:
            path += "/"
        else:
            return
    yield from (entry.path for entry in lake.list(repository, commit.id, path))
