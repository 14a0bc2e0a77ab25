"""`perago merge`: merge a branch into another one, in one commit."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Message, Remote, Repository, Root, Yes, new_put_branches
from perago.cli.server_choice import choose_servers
from perago.lake.base import Changes

Source = Annotated[str, typer.Argument(metavar="FROM", help="The branch, tag or commit to merge.")]
Target = Annotated[str, typer.Argument(metavar="INTO", help="The branch that gets its changes.")]


def merge(
    repository: Repository,
    source: Source,
    into: Target,
    message: Message = None,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Merge the changes of one branch into another, in one commit, or nothing at all if they conflict."""
    from perago.runtime.branch_changes import stage_merge
    from perago.runtime.branch_commit import MERGE, BranchCommit
    from perago.runtime.lake_lookup import check_no_internal_name, check_no_run, suggesting_existing_names

    check_no_internal_name(into)
    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    with choice.open_lake() as lake:
        with suggesting_existing_names(lake, repository, into):
            head = lake.head(repository, into).id
        with suggesting_existing_names(lake, repository, source):
            lake.commit_at(repository, source)
        if any(ref.name == source for ref in lake.branches(repository, source)):
            check_no_internal_name(source)
            if lake.has_uncommitted_changes(repository, source):
                output.warn(f"{source} has uncommitted objects, which are not merged")
        check_no_run(lake, repository, source)
        commit = BranchCommit(lake, MERGE, repository, into, choice.settings.fence, new_put_branches())
        with stage_merge(commit, source, message, options=choice.options(root)) as staged:
            if staged.left_out:
                output.note(f"left as it is on {into}: {', '.join(staged.left_out)} (lakeFS's actions)")
            found = staged.changes
            changed = staged.staged is not None
            if changed:
                choice.agree(f"Merge {source} into {repository}/{into}: {count_changes(found)}?")
                head = staged.publish()
            merged = staged.merged
    if as_json:
        output.data(
            {
                "repository": repository,
                "branch": into,
                "commit": head,
                "changed": changed,
                "merged": merged,
                "left_out": list(staged.left_out),
            }
        )
    elif not changed:
        output.say(f"nothing to merge: {repository}/{into} has all of {source} already, at {head}")
    else:
        output.say(f"{repository}/{into} is at {head}: {source} was merged, {count_changes(found)}")


def count_changes(changes: Changes) -> str:
    """Return the numbers of objects that were added, changed and removed, as text."""
    kinds = [change.kind for change in changes.rows]
    more = " or more" if changes.more else ""
    return (
        ", ".join(
            f"{kinds.count(kind)}{more} {kind}" for kind in ("added", "changed", "removed") if kind in kinds
        )
        or "no file differs"
    )
