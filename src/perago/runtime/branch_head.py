"""The workspace that a workflow starts from: REPO[@BRANCH] becomes the commit that the branch is at now."""

from __future__ import annotations

from perago.errors import LakeNotFound
from perago.lake.base import Lake
from perago.runtime.nearest import nearest

_OWN = "perago-"
"""Staging and claim branches begin like this; nobody starts from one."""


def head_of(lake: Lake, workspace: str) -> dict[str, str]:
    """The input's `workspace`; `main` where no branch is said."""
    repository, _, branch = workspace.partition("@")
    branch = branch or "main"
    try:
        head = lake.head(repository, branch).id
    except LakeNotFound as error:
        raise LakeNotFound(_there_is(lake, repository, branch)) from error
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}


def _there_is(lake: Lake, repository: str, branch: str) -> str:
    repositories = lake.repositories()
    if repository not in repositories:
        return f"no repository is called {repository!r}: {nearest(repository, repositories)}"
    names = [one.name for one in lake.branches(repository, "") if not one.name.startswith(_OWN)]
    return f"the repository {repository!r} has no branch {branch!r}: {nearest(branch, names)}"
