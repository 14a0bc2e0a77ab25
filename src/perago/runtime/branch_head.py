"""The workspace that a workflow starts from: REPO[@BRANCH] becomes the commit that the branch is at now."""

from __future__ import annotations

from perago.lake.base import Lake
from perago.runtime.lake_names import telling_what_there_is


def head_of(lake: Lake, workspace: str) -> dict[str, str]:
    """The input's `workspace`; `main` where no branch is said."""
    repository, _, branch = workspace.partition("@")
    branch = branch or "main"
    with telling_what_there_is(lake, repository, branch):
        head = lake.head(repository, branch).id
    return {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
