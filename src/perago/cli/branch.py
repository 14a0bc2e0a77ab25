"""`perago branch`: list a repository's branches, create one, or delete one."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, Root, Yes, format_time, new_put_branches
from perago.cli.server_choice import ServerChoice, choose_servers
from perago.errors import HeadMoved, LakeConflict, RuntimeConfigError

if TYPE_CHECKING:
    from perago.lake.base import Lake

Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="The branch to create or delete; without it, list all.")
]
Source = Annotated[
    str | None,
    typer.Argument(metavar="[FROM]", help="The branch, tag or commit it starts at (main by default)."),
]
Delete = Annotated[bool, typer.Option("--delete", help="Delete the branch NAME.")]
RemoveMarker = Annotated[
    bool,
    typer.Option(
        "--remove-marker",
        help="Remove the marker of an unpublished run, which keeps merges from the branch NAME.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Also list Perago's internal branches.")]
_AT_ONCE = 8


def branch(
    repository: Repository,
    name: Name = None,
    source: Source = None,
    delete: Delete = False,
    all_: All = False,
    remove_marker: RemoveMarker = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the branches of a repository, or create the branch NAME at the commit that FROM points to now."""
    if name == "":
        raise typer.BadParameter("NAME is empty")
    if name is None:
        if delete:
            raise typer.BadParameter("--delete needs the NAME of the branch to delete")
        if remove_marker:
            raise typer.BadParameter("--remove-marker needs the NAME of the branch")
        choice = choose_servers(root, remote, lake_only=True)
        with choice.open_lake() as lake:
            _list(lake, repository, all_=all_, as_json=as_json)
        return
    if all_:
        raise typer.BadParameter("--all is for listing branches: leave it out, or leave out NAME")
    if delete:
        if source is not None:
            raise typer.BadParameter("--delete takes only NAME: leave out FROM")
        choice = choose_servers(root, remote, asks="before it deletes", yes=yes, lake_only=True)
        with choice.open_lake() as lake:
            _delete(choice, lake, repository, name, options=choice.options(root), as_json=as_json)
        return
    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    if remove_marker:
        if source is not None:
            raise typer.BadParameter("--remove-marker takes only NAME: leave out FROM")
        _remove_marker(choice, repository, name, as_json=as_json)
        return
    _create(choice, (repository, name, source or "main"), root, as_json=as_json)


def _list(lake: Lake, repository: str, *, all_: bool, as_json: bool) -> None:
    from perago.protocol.metadata import KEY
    from perago.protocol.signing import author_of
    from perago.runtime.branch_changes import user_branches
    from perago.runtime.lake_lookup import suggesting_existing_names

    with suggesting_existing_names(lake, repository, "main"):
        found = list(lake.branches(repository, "")) if all_ else user_branches(lake, repository)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        heads = list(pool.map(lambda ref: lake.commit_at(repository, ref.commit), found))
    rows = list(zip(found, heads, strict=True))
    if as_json:
        output.data(
            [
                {
                    "branch": ref.name,
                    "commit": head.id,
                    "created": head.created,
                    "by": author_of(head),
                    "message": head.message,
                }
                for ref, head in rows
            ]
        )
        return
    width = max((len(ref.name) for ref in found), default=0)
    for ref, head in rows:
        # The message of a step's commit repeats who made it.
        said = "" if "/" in head.metadata.get(KEY, "") or not head.message else f": {head.message}"
        output.say(f"{ref.name:<{width}}  {head.id}  {format_time(head.created)}  {author_of(head)}{said}")


def _create(choice: ServerChoice, wanted: tuple[str, str, str], root: Path | None, *, as_json: bool) -> None:
    from perago.runtime.lake_lookup import INTERNAL_NAME_PREFIX, check_no_run, suggesting_existing_names

    repository, name, source = wanted
    if name.startswith(INTERNAL_NAME_PREFIX):
        raise RuntimeConfigError(
            f"{name!r} cannot be a branch name: {INTERNAL_NAME_PREFIX}* is reserved for Perago; choose another name"
        )
    with choice.open_lake() as lake:
        with suggesting_existing_names(lake, repository, source):
            commit = lake.commit_at(repository, source).id
        check_no_run(lake, repository, source)
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


def _remove_marker(choice: ServerChoice, repository: str, name: str, *, as_json: bool) -> None:
    from perago.runtime.branch_changes import remove_marker
    from perago.runtime.branch_commit import UNMARK, BranchCommit
    from perago.runtime.lake_lookup import check_no_internal_name, suggesting_existing_names

    check_no_internal_name(name)
    with choice.open_lake() as lake:
        with suggesting_existing_names(lake, repository, name):
            lake.head(repository, name)
        choice.agree(f"Remove the marker of a run from branch {name} of {repository}?")
        commit = BranchCommit(lake, UNMARK, repository, name, choice.settings.fence, new_put_branches())
        made = remove_marker(commit)
    if as_json:
        output.data({"repository": repository, "branch": name, "commit": made})
    else:
        output.say(
            f"{repository}/{name} has no marker" if made is None else f"{repository}/{name} is at {made}"
        )


def _delete(
    choice: ServerChoice, lake: Lake, repository: str, name: str, *, options: list[str], as_json: bool
) -> None:
    from perago.runtime.branch_changes import LONGEST_WALK, own_commits
    from perago.runtime.lake_lookup import check_no_internal_name, suggesting_existing_names

    check_no_internal_name(name)
    with suggesting_existing_names(lake, repository, name):
        head = lake.head(repository, name).id
    if name == "main":
        raise RuntimeConfigError(
            f"'main' is the default branch of repository {repository!r} and cannot be deleted"
        )
    lost = own_commits(lake, repository, name)
    are, them = ("is", "it") if len(lost) == 1 else ("are", "them")
    count = f"{len(lost)}{' or more' if len(lost) == LONGEST_WALK else ''} commit{'s' * (len(lost) != 1)}"
    if lost:
        output.warn(
            f"{count} of {name} {are} on no other branch, the newest {lost[0].id} "
            f"({lost[0].message}): only its id leads there afterwards, until garbage is collected; "
            f"`{shlex.join(['perago', 'merge', repository, name, 'main', *options])}` keeps {them}"
        )
    if lake.has_uncommitted_changes(repository, name):
        output.warn(f"{name} has uncommitted objects, which are lost")
    choice.agree_everywhere(f"Delete branch {name} of {repository}, which is at {head}?")
    if (now := lake.head(repository, name).id) != head:
        raise HeadMoved(
            f"branch {name!r} of {repository!r} moved from {head} to {now} meanwhile; it was not deleted: run the command "
            "again"
        )
    lake.drop_branch(repository, name)
    if as_json:
        output.data(
            {"repository": repository, "branch": name, "commit": head, "lost": [one.id for one in lost]}
        )
    else:
        again = shlex.join(["perago", "branch", repository, name, head, *options])
        output.say(f"{repository}/{name} was deleted; it was at {head} (`{again}` makes it again)")
