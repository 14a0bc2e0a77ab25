"""Looks up names in a lake: suggestions for names that do not exist, and the head of REPO[@BRANCH].

A suggestion never hides the original error: if the lake cannot be queried, that error is raised unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice

from perago.errors import LakeError, LakeNotFound, RuntimeConfigError
from perago.lake.base import ReadableLake
from perago.protocol.suggestions import did_you_mean, listed, nearest

INTERNAL_NAME_PREFIX = "perago-"
"""Prefix of the names of internal branches and tags."""
_NONE = "the lake holds none"
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


def head_of(lake: ReadableLake, workspace: str) -> dict[str, str]:
    """Return the `workspace` of a workflow input for REPO[@BRANCH], at the branch's current head.

    The default branch is `main`.
    """
    repository, _, branch = workspace.partition("@")
    branch = branch or "main"
    with suggesting_existing_names(lake, repository, branch):
        head = lake.head(repository, branch).id
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
