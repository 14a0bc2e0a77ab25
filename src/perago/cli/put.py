"""`perago put`: put a folder, or files, onto a branch in one commit; or the folders of a table, each into its repository."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.dev import default_workspace
from perago.cli.options import AsJson, Message, Remote, Root, Yes, new_put_branches, read_repository
from perago.cli.server_choice import ServerChoice, choose_servers
from perago.errors import RuntimeConfigError
from perago.protocol.paths import first_broken, has_dot_part, has_empty_part, has_nul, in_actions, leads_out

if TYPE_CHECKING:
    from perago.runtime.folder_upload import PutPlan, Target
    from perago.runtime.put_table import PutRow, RowPut, TablePut

Where = Annotated[
    str | None,
    typer.Argument(metavar="[REPO[@BRANCH]]", help="The repository, and the branch (main by default)."),
]
Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="[PATH]…", help="A folder with files, or single files.")
]
Prefix = Annotated[
    str, typer.Option("--prefix", "--to", metavar="P", help="Put the files into this repository folder.")
]
Delete = Annotated[
    bool, typer.Option("--delete", help="Delete objects below the prefix that are not in the folder.")
]
Create = Annotated[bool, typer.Option("--create", help="Create the repository if it does not exist.")]
Table = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Put many folders: a .csv, .jsonl or .parquet with columns repository and folder.",
    ),
]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="How many repositories to put into at once.")]

_NO_PREFIX = (
    (has_nul, "it holds a NUL character"),
    (has_empty_part, "it has an empty part"),
    (has_dot_part, "it has a part '.'"),
    (leads_out, "it has a part '..'"),
    (lambda prefix: in_actions(f"{prefix}/"), "it is where lakeFS keeps its actions"),
)
_MOST_ROWS = 10


def put(
    where: Where = None,
    paths: Paths = None,
    prefix: Prefix = "",
    message: Message = None,
    delete: Delete = False,
    create: Create = False,
    table: Table = None,
    jobs: Jobs = 4,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put a folder or files onto a branch: only what changed, in one commit, or nothing at all."""
    from perago.runtime.folder_upload import Target
    from perago.runtime.lake_lookup import check_no_internal_name
    from perago.runtime.maps.table import read_table
    from perago.runtime.put_table import TablePut, parse_rows

    if table is not None and where is not None:
        raise typer.BadParameter("--table names the repositories and folders: leave out REPO and PATH")
    if table is None and (where is None or not paths):
        raise typer.BadParameter("give REPO and a folder or files, or --table TABLE")
    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=True)
    repository, branch = read_repository(where) if where is not None else ("", None)
    fence = choice.settings.fence
    if branch is not None:
        check_no_internal_name(branch)
    elif repository and (default := default_workspace(choice, repository)) is not None:
        branch = read_repository(default)[1]
    target = Target(repository, branch or "main", _normalize_prefix(prefix), delete, fence)
    if table is not None:
        rows = parse_rows(read_table(table), target, _normalize_prefix)
        with choice.open_lake(create=create) as lake:
            puts = TablePut(
                lake,
                create=create,
                leave_out=choice.settings.root,
                jobs=jobs,
                new_branches=new_put_branches,
                options=choice.options(root),
            )
            done = _put_rows(choice, puts, rows, message, as_json=as_json)
        _print_table(done, as_json=as_json)
    else:
        _put_paths(choice, target, paths or [], root, create=create, message=message, as_json=as_json)


def _put_paths(
    choice: ServerChoice,
    target: Target,
    paths: list[Path],
    root: Path | None,
    *,
    create: bool,
    message: str | None,
    as_json: bool,
) -> None:
    from perago.runtime.folder_upload import FolderPut, plan_put, read_paths
    from perago.runtime.lake_lookup import suggesting_existing_names

    named = " ".join(str(path) for path in paths)
    with choice.open_lake(create=create) as lake:
        files = read_paths(lake, target, paths, leave_out=choice.settings.root)
        if create and target.repository not in lake.repositories():
            if target.branch != "main":
                raise RuntimeConfigError(
                    f"a new repository has only the branch main: put {target.repository}@main"
                )
            choice.agree(f"Create repository {target.repository}?")
            lake.create_repository(target.repository)
        with suggesting_existing_names(
            lake, target.repository, target.branch, remedy=_remedy(target, paths, choice.options(root))
        ):
            plan = plan_put(lake, target, files)
        commit = plan.head
        if plan:
            if choice.remote:
                output.note(
                    f"{len(plan.uploads)} to put, {len(plan.delete)} to delete on {target.repository}/{target.branch}"
                )
                choice.agree("Put them there?")
            folder_put = FolderPut(lake, target, files, new_put_branches())
            commit, plan = folder_put.publish(
                plan, message or f"put of {named}", partial(output.transfer_bar, quiet=as_json)
            )
    if as_json:
        output.data(_as_json(target, plan, commit))
    elif commit == plan.head:
        output.say(f"{target.repository}/{target.branch} already has all of it, at {commit}")
    else:
        output.say(f"{target.repository}/{target.branch} is at {commit}: {_counts(plan)}")


def _put_rows(
    choice: ServerChoice, puts: TablePut, rows: list[PutRow], message: str | None, *, as_json: bool
) -> list[RowPut]:
    """Show what the rows would put, ask, put them, and return how each ended, in the table's order."""
    prepared = puts.prepare(rows)
    going = [one for one in prepared if not one.error and (one.plan is None or one.plan)]
    if going:
        files = sum(len(one.plan.uploads if one.plan else one.files) for one in going)
        gone = sum(len(one.plan.delete) for one in going if one.plan)
        made = len({one.row.target.repository for one in going if one.plan is None})
        created = f", create {made} repositories" if made else ""
        choice.agree(f"Put {files} files by {len(going)} of {len(rows)} rows, delete {gone}{created}?")
    done = {one.row.number: one for one in prepared if one.error}
    try:
        for one in puts.put(prepared, message):
            done[one.row.number] = one
            if not as_json and not one.error:
                _say_row(one, len(done), len(rows))
    except KeyboardInterrupt:
        output.note("stopped; the same command continues: rows that are done commit nothing again")
        raise
    return [done[number] for number in sorted(done)]


def _say_row(one: RowPut, ended: int, rows: int) -> None:
    target = one.row.target
    what = _counts(one.plan) if one.changed and one.plan else "already has all of it"
    output.say(f"[{ended}/{rows}] {target.repository}/{target.branch} is at {one.commit}: {what}")


def _print_table(done: list[RowPut], *, as_json: bool) -> None:
    from perago.runtime.put_table import failure_groups

    failed = [one for one in done if one.error]
    if as_json:
        output.data({"failed": len(failed), "rows": [_row_as_json(one) for one in done]})
    else:
        for reason, rows in failure_groups(done).items():
            numbers = ", ".join(str(one.row.number) for one in rows[:_MOST_ROWS])
            more = f" and {len(rows) - _MOST_ROWS} more" if len(rows) > _MOST_ROWS else ""
            output.error(f"row{'s' * (len(rows) > 1)} {numbers}{more} failed: {reason}")
        changed = sum(one.changed for one in done)
        output.say(
            f"{changed} of {len(done)} rows put, {len(done) - changed - len(failed)} unchanged, {len(failed)} failed"
        )
        if failed:
            output.note("once you have fixed the cause, run the same command again: only these rows are left")
    if failed:
        raise typer.Exit(output.FAILED)


def _row_as_json(one: RowPut) -> dict[str, Any]:
    row = one.row
    if one.error or one.plan is None:
        done: dict[str, Any] = {"repository": row.target.repository, "branch": row.target.branch}
    else:
        done = _as_json(row.target, one.plan, one.commit)
    return {"row": row.number, "folder": str(row.folder), **done, "error": one.error or None}


def _as_json(target: Target, plan: PutPlan, commit: str) -> dict[str, Any]:
    changed = commit != plan.head
    return {
        "repository": target.repository,
        "branch": target.branch,
        "commit": commit,
        "changed": changed,
        "put": [file.path for file in plan.uploads] if changed else [],
        "deleted": list(plan.delete) if changed else [],
        "unchanged": plan.unchanged if changed else plan.unchanged + len(plan.uploads),
    }


def _counts(plan: PutPlan) -> str:
    return f"{len(plan.uploads)} put, {len(plan.delete)} deleted, {plan.unchanged} unchanged"


def _remedy(target: Target, paths: list[Path], here: list[str]) -> tuple[str, str]:
    """Return the commands that create the repository and the branch."""
    make = ["perago", "put", target.repository, *(str(path) for path in paths), "--create", *here]
    return shlex.join(make), shlex.join(["perago", "branch", target.repository, target.branch, *here])


def _normalize_prefix(prefix: str) -> str:
    inner = prefix.strip("/")
    if not inner:
        return ""
    if (wrong := first_broken(inner, _NO_PREFIX)) is not None:
        raise RuntimeConfigError(
            f"--prefix {prefix!r} is not a repository folder: {wrong}; give one such as raw/2026"
        )
    return f"{inner}/"
