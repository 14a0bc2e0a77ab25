"""`perago history`: list the commits on a branch, newest first, and the attempts that made them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, RepositoryAt, Root, format_time, read_repository
from perago.cli.server_choice import open_lake_to_read
from perago.errors import LakeError
from perago.protocol.metadata import FENCE, KEY
from perago.protocol.provenance import Provenance
from perago.runtime.lake_lookup import ReplacedCommit, replaced_commits, suggesting_existing_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.lake.base import Commit, ReadableLake

Branch = Annotated[
    str | None,
    typer.Argument(metavar="REF", help="A branch, tag or commit (main), unless REPO names one."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many commits.")]


def history(
    where: RepositoryAt,
    branch: Branch = None,
    root: Root = None,
    remote: Remote = None,
    limit: Limit = 1000,
    as_json: AsJson = False,
) -> None:
    """List the commits on a branch, newest first, following first parents."""
    repository, named = read_repository(where)
    ref = named or branch or "main"
    with open_lake_to_read(root, remote) as lake, suggesting_existing_names(lake, repository, ref):
        commits = list(lake.log(repository, ref, limit))
        replaced, left_out = replaced_or_nothing(lake, repository, commits)
    if as_json:
        output.data(
            [
                {
                    **_as_json(commit),
                    "replaced": [
                        {**_as_json(one.commit), "tag": one.tag, "signed": one.signed}
                        for one in replaced.get(commit.id, ())
                    ],
                }
                for commit in commits
            ]
        )
        return
    for commit in commits:
        for one in replaced.get(commit.id, ()):
            output.say(f"  {_line(one.commit)}  [{_fate(one)}; the tag {one.tag} keeps it]")
        key = commit.metadata.get(KEY)
        made_with = Provenance.of(commit.metadata).short
        with_code = f", code {made_with}" if made_with else ""
        signed = f"  [{key}, fence {commit.metadata.get(FENCE, '?')}{with_code}]" if key else ""
        output.say(f"{_line(commit)}{signed}")
    if left_out:
        output.note(f"{left_out} more tags of replaced commits were not read")


def replaced_or_nothing(
    lake: ReadableLake, repository: str, commits: Sequence[Commit]
) -> tuple[Mapping[str, list[ReplacedCommit]], int]:
    """Return the replaced commits by the commit on which they were made. Without the right to read tags, there are none."""
    try:
        return replaced_commits(lake, repository, {commit.id for commit in commits})
    except LakeError as error:
        output.note(f"replaced commits are not shown, because their tags could not be read: {error}")
        return {}, 0


def _line(commit: Commit) -> str:
    return f"{commit.id}  {format_time(commit.created)}  {commit.message}"


def _fate(one: ReplacedCommit) -> str:
    return "replaced by a retry" if one.signed else "replaced, although no Perago task made it"


def _as_json(commit: Commit) -> dict[str, Any]:
    return {
        "id": commit.id,
        "parents": list(commit.parents),
        "message": commit.message,
        "metadata": dict(commit.metadata),
        "created": commit.created,
    }
