"""`perago put`: put a folder's files onto a branch in one commit."""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, Yes, read_repository
from perago.cli.server_choice import choose_servers
from perago.errors import RuntimeConfigError
from perago.protocol.names import put_branch_name
from perago.protocol.paths import first_broken, has_dot_part, has_empty_part, has_nul, in_actions, leads_out

if TYPE_CHECKING:
    from perago.runtime.folder_upload import PutPlan, Target

Where = Annotated[
    str, typer.Argument(metavar="REPO[@BRANCH]", help="The repository, and the branch (main by default).")
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with the files.")]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="P", help="Put the files into this folder of the repository.")
]
Message = Annotated[str | None, typer.Option("--message", "-m", metavar="M", help="The commit's message.")]
Delete = Annotated[
    bool, typer.Option("--delete", help="Delete objects below the prefix that are not in the folder.")
]
Create = Annotated[bool, typer.Option("--create", help="Create the repository if it does not exist.")]

_NO_PREFIX = (
    (has_nul, "it holds a NUL character"),
    (has_empty_part, "it has an empty part"),
    (has_dot_part, "it has a part '.'"),
    (leads_out, "it has a part '..'"),
    (lambda prefix: in_actions(f"{prefix}/"), "it is where lakeFS keeps its actions"),
)


def put(
    where: Where,
    folder: Folder,
    prefix: Prefix = "",
    message: Message = None,
    delete: Delete = False,
    create: Create = False,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put a folder's files onto a branch: only what changed, in one commit, or nothing at all."""
    from perago.runtime.folder_upload import FolderPut, Target, plan_put, read_folder
    from perago.runtime.lake_lookup import suggesting_existing_names

    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    settings = choice.settings
    repository, branch = read_repository(where)
    target = Target(repository, branch or "main", _normalize_prefix(prefix), delete, settings.fence)
    with choice.open_lake(create=create) as lake:
        files = read_folder(lake, target, folder, leave_out=settings.root)
        if create and repository not in lake.repositories():
            if target.branch != "main":
                raise RuntimeConfigError(f"a new repository has only the branch main: put {repository}@main")
            choice.agree(f"Create repository {repository}?")
            lake.create_repository(repository)
        with suggesting_existing_names(
            lake, repository, target.branch, remedy=_remedy(where, folder, choice.options(root))
        ):
            plan = plan_put(lake, target, files)
        commit = plan.head
        if plan:
            if choice.remote:
                output.note(
                    f"{len(plan.uploads)} to put, {len(plan.delete)} to delete on {repository}/{branch or 'main'}"
                )
                choice.agree("Put them there?")
            folder_put = FolderPut(lake, target, files, _new_branches())
            commit_message = message or f"put of {folder}"
            commit, plan = folder_put.publish(
                plan, commit_message, partial(output.transfer_bar, quiet=as_json)
            )
    _print_result(target, plan, commit, as_json=as_json)


def _print_result(target: Target, plan: PutPlan, commit: str, *, as_json: bool) -> None:
    changed = commit != plan.head
    if as_json:
        output.data(
            {
                "repository": target.repository,
                "branch": target.branch,
                "commit": commit,
                "changed": changed,
                "put": [file.path for file in plan.uploads] if changed else [],
                "deleted": list(plan.delete) if changed else [],
                "unchanged": plan.unchanged if changed else plan.unchanged + len(plan.uploads),
            }
        )
    elif not changed:
        output.say(f"{target.repository}/{target.branch} already has all of it, at {commit}")
    else:
        output.say(
            f"{target.repository}/{target.branch} is at {commit}: {len(plan.uploads)} put, "
            f"{len(plan.delete)} deleted, {plan.unchanged} unchanged"
        )


def _remedy(where: str, folder: Path, here: list[str]) -> tuple[str, str]:
    """Return the commands that create the repository and the branch."""
    repository, branch = read_repository(where)
    make = shlex.join(["perago", "put", repository, str(folder), "--create", *here])
    return make, shlex.join(["perago", "branch", repository, branch or "main", *here])


def _normalize_prefix(prefix: str) -> str:
    inner = prefix.strip("/")
    if not inner:
        return ""
    if (wrong := first_broken(inner, _NO_PREFIX)) is not None:
        raise RuntimeConfigError(
            f"--prefix {prefix!r} is not a repository folder: {wrong}; give one such as raw/2026"
        )
    return f"{inner}/"


def _new_branches() -> Iterator[str]:
    while True:
        yield put_branch_name(time.time(), uuid.uuid4().hex[:12])
