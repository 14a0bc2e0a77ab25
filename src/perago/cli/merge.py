"""`perago merge`: merge a branch into another one, in one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Message, Remote, Repository, Root, Yes, new_put_branches
from perago.cli.row_diff_view import (
    Key,
    LimitBytes,
    Rows,
    compare_rows,
    read_key,
    row_diff_json,
    say_row_diff,
)
from perago.cli.server_choice import Asks, choose_servers
from perago.lake.base import Change, Changes, ReadableLake

if TYPE_CHECKING:
    from perago.runtime.branch_changes import StagedMerge
    from perago.runtime.row_diff import RowDiff

Source = Annotated[str, typer.Argument(metavar="FROM", help="The branch, tag or commit to merge.")]
Target = Annotated[str, typer.Argument(metavar="INTO", help="The branch that gets its changes.")]
Paths = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PATH]…", help="With --diff: show only these objects, folders or tables."),
]
Diff = Annotated[bool, typer.Option("--diff", help="Show what the merge would change, and ask.")]
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
_MOST_SHOWN = 20


def merge(
    repository: Repository,
    source: Source,
    into: Target,
    paths: Paths = None,
    diff: Diff = False,
    rows: Rows = False,
    key: Key = "",
    limit_bytes: LimitBytes = None,
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

    columns = read_key(key, rows=rows, limit_bytes=limit_bytes)
    if not diff and (rows or paths):
        raise typer.BadParameter(f"{'--rows' if rows else 'PATH'} says what to show: add --diff")
    if rows:
        from perago.runtime.row_diff import check_engine

        check_engine()
    request = _DiffRequest(tuple(paths or ()), rows, columns, limit_bytes)
    shown: _MergeDiff | None = None
    check_no_internal_name(into)
    asks: Asks = "before it merges" if diff else "before it writes"
    choice = choose_servers(root, remote, asks=asks, yes=yes, lake_only=True)
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
                question = f"Merge {source} into {repository}/{into}: {count_changes(found)}?"
                if diff:
                    shown = _compare(lake, staged, request)
                    if not as_json:
                        _say(shown)
                    choice.agree_everywhere(question)
                else:
                    choice.agree(question)
                # It is refused if the branch has moved: what is merged is what was shown, on the head that it was shown for.
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
            | ({"diff": _as_json(shown)} if diff else {})
        )
    elif not changed:
        output.say(f"nothing to merge: {repository}/{into} has all of {source} already, at {head}")
    else:
        output.say(f"{repository}/{into} is at {head}: {source} was merged, {count_changes(found)}")


@dataclass(frozen=True, slots=True)
class _DiffRequest:
    """The part of a merge to show: paths (all if there are none), and how to compare rows."""

    paths: tuple[str, ...]
    rows: bool
    key: tuple[str, ...]
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class _MergeDiff:
    """The objects that a merge changes, without those of the tables whose rows were compared."""

    objects: list[Change]
    tables: list[RowDiff]


def _compare(lake: ReadableLake, staged: StagedMerge, request: _DiffRequest) -> _MergeDiff:
    """Compare the target branch's head with the staged merge."""
    from perago.runtime.table_files import tables_among

    assert staged.staged is not None  # noqa: S101 - the caller has checked it
    objects = [
        change
        for change in staged.changes.rows
        if not request.paths or any(_within(path, change.path) for path in request.paths)
    ]
    for path in request.paths:
        if not any(_within(path, change.path) for change in objects):
            output.note(f"{path}: the merge changes nothing there")
    if staged.changes.more:
        output.note(f"only the first {len(staged.changes.rows)} objects that the merge changes were compared")
    if not request.rows:
        return _MergeDiff(objects, [])
    changed = [change.path for change in objects]
    tables = [path for path in request.paths if any(_within(path, one) for one in changed)]
    tables = tables if request.paths else tables_among(changed)
    between = staged.commit.repository, staged.head, staged.staged.commit
    compared = compare_rows(lake, between, tables, request.key, request.limit_bytes)
    return _MergeDiff(
        [one for one in objects if not any(_within(table, one.path) for table in tables)], compared
    )


def _within(path: str, changed: str) -> bool:
    root = path.rstrip("/")
    return changed == root or changed.startswith(f"{root}/")


def _say(shown: _MergeDiff) -> None:
    for change in shown.objects[:_MOST_SHOWN]:
        sign, style = _SIGNS[change.kind]
        output.say(f"{sign} {change.path}", style)
    if len(shown.objects) > _MOST_SHOWN:
        output.say(f"… and {len(shown.objects) - _MOST_SHOWN} more objects")
    for table in shown.tables:
        say_row_diff(table)


def _as_json(shown: _MergeDiff | None) -> dict[str, Any]:
    objects = shown.objects if shown else []
    return {
        "objects": [{"path": one.path, "change": one.kind, "size": one.size} for one in objects],
        "tables": [row_diff_json(one) for one in (shown.tables if shown else [])],
    }


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
