"""`perago dev`: work on a branch named after the current Git branch, and the default branch that other commands take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, Yes
from perago.cli.server_choice import ServerChoice, choose_servers
from perago.settings import shown_address

if TYPE_CHECKING:
    from perago.runtime.dev_branch import DevBranch

Wanted = Annotated[
    str | None,
    typer.Argument(metavar="[REPO]", help="The repository; without it, show the default of this folder."),
]
Off = Annotated[bool, typer.Option("--off", help="Take no default any more. The branch stays.")]


def dev(
    repository: Wanted = None,
    off: Off = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Create a branch named after the current Git branch, and make it the default of `run` and `put` in this folder."""
    from perago.runtime.dev_branch import DevBranches, read_dev_branches, save_dev_branches

    if repository is not None and "@" in repository:
        raise typer.BadParameter("give REPO alone: the branch is named after the Git branch")
    if repository is not None and off:
        raise typer.BadParameter("--off takes no REPO")
    if repository is not None:
        choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
        _switch(choice, repository, as_json=as_json)
        return
    choice = choose_servers(root, remote, lake_only=True)
    known = read_dev_branches(choice.settings.root)
    if off:
        save_dev_branches(choice.settings.root, DevBranches(None, known.created))
    _show(None if off else known.default, created=False, as_json=as_json)


def _switch(choice: ServerChoice, repository: str, *, as_json: bool) -> None:
    from perago.runtime.dev_branch import (
        DevBranch,
        create,
        is_there,
        lake_branch_name,
        need_git_branch,
        read_dev_branches,
        save_dev_branches,
        with_default,
    )
    from perago.runtime.lake_lookup import suggesting_existing_names

    git = need_git_branch(Path.cwd())
    wanted = DevBranch(lake_of(choice), repository, lake_branch_name(git), git)
    root = choice.settings.root
    known = read_dev_branches(root)
    with choice.open_lake() as lake, suggesting_existing_names(lake, repository, "main"):
        head = lake.head(repository, "main").id
        created = not is_there(lake, wanted, known)
        if created:
            choice.agree(f"Create branch {wanted.branch} of {repository} at {head}?")
            create(lake, wanted, head, known)
    save_dev_branches(root, with_default(known, wanted))
    _show(wanted, created=created, as_json=as_json)


def _show(default: DevBranch | None, *, created: bool, as_json: bool) -> None:
    if as_json:
        output.data(
            {
                "repository": default.repository if default else None,
                "branch": default.branch if default else None,
                "git_branch": default.git_branch if default else None,
                "lake": default.lake if default else None,
                "created": created,
            }
        )
    elif default is None:
        output.say("no default branch: `perago dev REPO` makes one, named after the current Git branch")
    else:
        made = "was created at main's head" if created else "is the default of `run` and `put` in this folder"
        output.say(f"{default.repository}@{default.branch} {made} (Git branch {default.git_branch})")


def default_workspace(choice: ServerChoice, workspace: str | None) -> str | None:
    """Return REPO@BRANCH with the default branch, where a command line leaves out the branch or all of it.

    Prints the default that is taken.  Returns None if there is no default for this repository, or in this lake.
    """
    from perago.runtime.dev_branch import git_branch, read_dev_branches

    default = read_dev_branches(choice.settings.root).default
    if default is None or default.lake != lake_of(choice) or workspace not in (None, default.repository):
        return None
    named = f"{default.repository}@{default.branch}"
    output.note(f"default branch: {named} (perago dev, Git branch {default.git_branch})")
    now = git_branch(Path.cwd())
    if now not in (None, default.git_branch):
        output.warn(
            f"Git is on {now} now, but the default is for {default.git_branch}: `perago dev {default.repository}` "
            "switches, `perago dev --off` takes no default"
        )
    return named


def lake_of(choice: ServerChoice) -> str:
    """Return the lake that a default is for."""
    lakefs = choice.settings.lakefs
    return shown_address(lakefs.endpoint) if choice.remote and lakefs is not None else "embedded"
