"""`perago blame`: show the commit that last wrote a file or a folder, and which step made it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, RepositoryAt, Root, format_time, read_repository
from perago.cli.server_choice import choose_servers
from perago.protocol.metadata import MERGED_BRANCH, MERGED_COMMIT, RESTORED_COMMIT, RUN_COMMIT
from perago.protocol.signing import author_of, maker_of

if TYPE_CHECKING:
    from perago.lake.base import Commit, ReadableLake
    from perago.runtime.blame import Blame

Rest = Annotated[
    list[str],
    typer.Argument(metavar="[REF] PATH", help="The ref, unless REPO names it; then the file or folder."),
]
Files = Annotated[bool, typer.Option("--files", help="Show the last writer of each file in the folder.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Search at most this many commits.")]


Upstream = Annotated[
    bool,
    typer.Option("--upstream", help="Show where it comes from: the attempts behind it, and their inputs."),
]
Depth = Annotated[
    int, typer.Option("--depth", min=1, help="With --upstream, go at most this many steps back.")
]


def blame(
    where: RepositoryAt,
    rest: Rest,
    files: Files = False,
    upstream: Upstream = False,
    depth: Depth = 20,
    limit: Limit = 1000,
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Show the commit that last wrote a file or a table's folder, with the step, attempt and input behind it."""
    from perago.cli.upstream_view import show_upstream
    from perago.runtime.blame import find_last_writer
    from perago.runtime.lake_lookup import suggesting_existing_names
    from perago.runtime.upstream import Limits, find_upstream

    repository, ref = read_repository(where)
    words = list(rest)
    if ref is None:
        ref = words.pop(0) if len(words) > 1 else "main"
    if len(words) > 1:
        raise typer.BadParameter(f"too many arguments: {' '.join(words[1:])}")
    if files and upstream:
        raise typer.BadParameter("--files and --upstream exclude each other")
    choice = choose_servers(root, remote, lake_only=True)
    if upstream:
        with choice.open_lake() as lake, suggesting_existing_names(lake, repository, ref):
            limits = Limits(depth=depth, commits=limit)
            traced = find_upstream(lake, repository, ref, words[0].lstrip("/"), limits)
        show_upstream(repository, ref, traced, as_json=as_json)
        return
    with choice.open_lake() as lake:
        with suggesting_existing_names(lake, repository, ref):
            found = find_last_writer(lake, repository, ref, words[0].lstrip("/"), limit=limit)
        rows = _file_rows(lake, repository, ref, found, limit) if files else []
    if as_json:
        shown = {"repository": repository, "ref": ref, "path": found.path, "kind": found.kind}
        data = {**shown, "searched": found.searched, "commit": None, **_as_json(found.commit)}
        output.data({**data, "files": rows} if files else data)
        return
    for line in _lines(repository, found, choice.options(root)):
        output.say(line)
    for row in rows:
        created = format_time(row["created"]) if row["commit"] else "-" * 19
        output.say(f"  {row['path']}  {row['commit'] or 'older'}  {created}  {row.get('by', '')}")


def _file_rows(
    lake: ReadableLake, repository: str, ref: str, found: Blame, limit: int
) -> list[dict[str, Any]]:
    from perago.runtime.blame import find_file_writers

    if found.kind != "folder":
        raise typer.BadParameter(f"--files is for folders, and {found.path!r} is none: leave it out")
    writers = find_file_writers(lake, repository, ref, found.path, limit=limit)
    return [{"path": path, "commit": None, **_as_json(commit)} for path, commit in writers.items()]


def _lines(repository: str, found: Blame, options: Sequence[str]) -> list[str]:
    """Return the description of a path's last writer, for people. `options` name the servers."""
    commit = found.commit
    if commit is None:
        return [
            f"{found.path} was not changed in the newest {found.searched} commits: add --limit to search more"
        ]
    metadata, maker = commit.metadata, maker_of(commit)
    verb = "deleted" if found.kind == "deleted" else "last written"
    lines = [
        f"{found.path or '/'} was {verb} by commit {commit.id}, {format_time(commit.created)}",
        f"  by: {author_of(commit)}",
    ]
    if maker is not None:
        lines.append(f"  attempt: retry {maker.retry_count}, task {maker.task_id}")
        lines.append(f"  input: commit {maker.input_ref}")
    if MERGED_COMMIT in metadata:
        lines.append(f"  merged: {metadata.get(MERGED_BRANCH, '?')}, at commit {metadata[MERGED_COMMIT]}")
    if RESTORED_COMMIT in metadata:
        lines.append(f"  restored from: commit {metadata[RESTORED_COMMIT]}")
    if RUN_COMMIT in metadata:
        lines.append(f"  run: a whole run, up to commit {metadata[RUN_COMMIT]}")
    origin = next(
        (metadata[key] for key in (MERGED_COMMIT, RESTORED_COMMIT, RUN_COMMIT) if key in metadata), ""
    )
    if origin and not (RESTORED_COMMIT in metadata and found.kind == "deleted"):
        there = ["perago", "blame", f"{repository}@{origin[:12]}", found.path or "/", *options]
        lines.append(f"  who wrote it there: `{shlex.join(there)}`")
    return [*lines, f"  message: {commit.message}"]


def _as_json(commit: Commit | None) -> dict[str, Any]:
    if commit is None:
        return {}
    maker = maker_of(commit)
    return {
        "commit": commit.id,
        "parents": list(commit.parents),
        "created": commit.created,
        "message": commit.message,
        "by": author_of(commit),
        "workflow_id": maker.workflow_id if maker else None,
        "step": maker.reference if maker else None,
        "task_id": maker.task_id if maker else None,
        "retry_count": maker.retry_count if maker else None,
        "input": maker.input_ref if maker else None,
        "merged_branch": commit.metadata.get(MERGED_BRANCH),
        "merged_commit": commit.metadata.get(MERGED_COMMIT),
        "restored_commit": commit.metadata.get(RESTORED_COMMIT),
        "run_commit": commit.metadata.get(RUN_COMMIT),
        "metadata": dict(commit.metadata),
    }
