"""`perago branch`: create a branch in a repository."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, Root, Yes
from perago.cli.server_choice import choose_servers
from perago.errors import LakeConflict, RuntimeConfigError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The new branch.")]
Source = Annotated[str, typer.Argument(metavar="FROM", help="The branch, tag or commit it starts at.")]


def branch(
    repository: Repository,
    name: Name,
    source: Source = "main",
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create a branch at the commit that FROM points to now."""
    from perago.runtime.lake_lookup import INTERNAL_NAME_PREFIX, suggesting_existing_names

    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    if name.startswith(INTERNAL_NAME_PREFIX):
        raise RuntimeConfigError(
            f"{name!r} cannot be a branch name: {INTERNAL_NAME_PREFIX}* is reserved for Perago; choose another name"
        )
    with choice.open_lake() as lake:
        with suggesting_existing_names(lake, repository, source):
            commit = lake.commit_at(repository, source).id
        choice.agree(f"Create branch {name} of {repository} at {commit}?")
        try:
            lake.create_branch(repository, name, commit, hidden=False)
        except LakeConflict as taken:
            look = shlex.join(["perago", "history", repository, name, *choice.options(root)])
            raise RuntimeConfigError(
                f"repository {repository!r} has a branch {name!r} already: choose another name, or look at it with `{look}`"
            ) from taken
    if as_json:
        output.data({"repository": repository, "branch": name, "commit": commit})
    else:
        output.say(f"{repository}/{name} is at {commit}")
