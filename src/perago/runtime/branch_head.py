"""The workspace that a workflow starts from: REPO[@BRANCH] becomes the commit that the branch is at now."""

from __future__ import annotations

from collections.abc import Collection

from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.protocol.nearest import nearest
from perago.runtime.lake_names import telling_what_there_is


def expect_workspace(lake: Lake, workspace: str, *, to_come: Collection[str]) -> None:
    """Refuse a workspace that is not there, and will not be when the repositories `to_come` are."""
    repository, _, branch = workspace.partition("@")
    if repository in to_come and branch in ("", "main"):
        return
    if repository in to_come:
        raise RuntimeConfigError(
            f"--workspace {workspace}: a new repository has only the branch main; use {repository}"
        )
    if (close := nearest(repository, to_come)) is not None and repository not in lake.repositories():
        raise RuntimeConfigError(
            f"--workspace {workspace}: there is no repository {repository!r}; did you mean {close!r}, which is imported?"
        )
    head_of(lake, workspace)


def head_of(lake: Lake, workspace: str) -> dict[str, str]:
    """The input's `workspace`; `main` where no branch is said."""
    repository, _, branch = workspace.partition("@")
    branch = branch or "main"
    with telling_what_there_is(lake, repository, branch):
        head = lake.head(repository, branch).id
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
