"""`perago branch`: a new branch of a repository."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, StateRoot, Yes, writable_lake
from perago.cli.remote import agree, settings_for
from perago.errors import LakeConflict, RuntimeConfigError

Name = Annotated[str, typer.Argument(metavar="NAME", help="The new branch.")]
Source = Annotated[str, typer.Argument(metavar="FROM", help="The branch, tag or commit that it begins at.")]


def branch(
    repository: Repository,
    name: Name,
    source: Source = "main",
    root: StateRoot = None,
    remote: Remote = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create a branch; it begins at the commit that FROM names now."""
    from perago.runtime.lake_names import OWN, telling_what_there_is

    settings = settings_for(root, remote=remote, yes=yes, lake_only=True)
    if name.startswith(OWN):
        raise RuntimeConfigError(
            f"{name!r} cannot be the name of a branch: {OWN}* are Perago's own; choose another"
        )
    with writable_lake(settings, remote=remote) as lake:
        with telling_what_there_is(lake, repository, source):
            commit = lake.commit_at(repository, source).id
        if remote:
            agree(f"Create branch {name} of {repository} at {commit}?", yes=yes)
        try:
            lake.create_branch(repository, name, commit, hidden=False)
        except LakeConflict as taken:
            raise RuntimeConfigError(
                f"repository {repository!r} has a branch {name!r} already: choose another name, or look at it with "
                f"`perago history {repository} {name}`"
            ) from taken
    if as_json:
        output.data({"repository": repository, "branch": name, "commit": commit})
    else:
        output.say(f"{repository}/{name} is at {commit}")
