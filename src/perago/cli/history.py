"""`perago history`: the commits of a branch, newest first, and who made them."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Repository, Root, opened, when
from perago.protocol.metadata import FENCE, KEY

Branch = Annotated[str, typer.Argument(metavar="BRANCH", help="A branch, tag or commit.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many commits.")]


def history(
    repository: Repository,
    branch: Branch = "main",
    root: Root = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """List the commits of a branch along its first parents, newest first."""
    with opened(root) as lake:
        commits = list(lake.log(repository, branch, limit))
    if as_json:
        output.data(
            [
                {
                    "id": commit.id,
                    "parents": list(commit.parents),
                    "message": commit.message,
                    "metadata": dict(commit.metadata),
                    "created": commit.created,
                }
                for commit in commits
            ]
        )
        return
    for commit in commits:
        key = commit.metadata.get(KEY)
        signed = f"  [{key}, fence {commit.metadata.get(FENCE, '?')}]" if key else ""
        output.say(f"{commit.id}  {when(commit.created)}  {commit.message}{signed}")
