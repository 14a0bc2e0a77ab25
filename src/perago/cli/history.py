"""`perago history`: list the commits on a branch, newest first, and the attempts that made them."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, RepositoryAt, Root, format_time, read_repository
from perago.cli.server_choice import open_lake_to_read
from perago.protocol.metadata import FENCE, KEY
from perago.runtime.lake_lookup import suggesting_existing_names

Branch = Annotated[
    str | None,
    typer.Argument(metavar="REF", help="A branch, tag or commit (main), unless REPO names one."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many commits.")]


def history(
    where: RepositoryAt,
    branch: Branch = None,
    root: Root = None,
    remote: Remote = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """List the commits on a branch, newest first, following first parents."""
    repository, named = read_repository(where)
    ref = named or branch or "main"
    with open_lake_to_read(root, remote) as lake, suggesting_existing_names(lake, repository, ref):
        commits = list(lake.log(repository, ref, limit))
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
        output.say(f"{commit.id}  {format_time(commit.created)}  {commit.message}{signed}")
