"""`perago restore`: bring back an old state of a branch, or of some of its files, as a new commit."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.merge import count_changes
from perago.cli.options import AsJson, Message, Remote, Repository, Root, Yes, new_put_branches
from perago.cli.server_choice import choose_servers
from perago.lake.base import Changes

Ref = Annotated[
    str, typer.Argument(metavar="REF", help="The commit, tag or branch that has the wanted state.")
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]…", help="The files or folders to restore; everything by default."),
]
Branch = Annotated[str, typer.Option("--branch", metavar="B", help="The branch that gets the commit.")]


def restore(
    repository: Repository,
    ref: Ref,
    paths: Paths = None,
    branch: Branch = "main",
    message: Message = None,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Bring back the state of files, folders or everything at REF, as a new commit. No branch is moved back."""
    from perago.protocol.names import is_run_branch
    from perago.runtime.branch_changes import plan_restore
    from perago.runtime.branch_changes import restore as publish
    from perago.runtime.branch_commit import RESTORE, BranchCommit
    from perago.runtime.lake_lookup import check_no_internal_name, check_no_run, suggesting_existing_names

    check_no_internal_name(branch)
    if is_run_branch(ref):
        check_no_internal_name(ref)
    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    with choice.open_lake() as lake:
        for one in (branch, ref):
            with suggesting_existing_names(lake, repository, one):
                lake.commit_at(repository, one)
        check_no_run(lake, repository, ref)
        with suggesting_existing_names(lake, repository, branch):
            plan = plan_restore(lake, repository, branch, ref, paths or [])
        commit = plan.head
        counted = count_changes(Changes(plan.changes, False))
        if plan.changes:
            choice.agree(f"Restore {ref} on {repository}/{branch}: {counted}?")
            target = BranchCommit(
                lake, RESTORE, repository, branch, choice.settings.fence, new_put_branches()
            )
            what = ", ".join(paths) if paths else "everything"
            commit = publish(target, plan, message or f"restore of {what} from {ref}")
    changed = commit != plan.head
    if as_json:
        output.data(
            {
                "repository": repository,
                "branch": branch,
                "commit": commit,
                "changed": changed,
                "restored_from": plan.source,
                "restored": [one.path for one in plan.changes if one.kind != "removed"] if changed else [],
                "removed": [one.path for one in plan.changes if one.kind == "removed"] if changed else [],
            }
        )
    elif not changed:
        output.say(f"nothing to restore: {repository}/{branch} is already as it was at {ref}, at {commit}")
    else:
        output.say(f"{repository}/{branch} is at {commit}: restored from {ref}, {counted}")
