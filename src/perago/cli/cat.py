"""`perago cat`: write one object's bytes to stdout."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import Remote, RepositoryAt, Root, read_repository
from perago.cli.server_choice import open_lake_to_read
from perago.errors import LakeNotFound
from perago.runtime.lake_lookup import describe_missing_object, suggesting_existing_names

Rest = Annotated[
    list[str],
    typer.Argument(metavar="[REF] PATH", help="The ref, unless REPO names it; then the object."),
]


def cat(where: RepositoryAt, rest: Rest, root: Root = None, remote: Remote = None) -> None:
    """Write one object's bytes to stdout."""
    repository, ref = read_repository(where)
    words = list(rest)
    if ref is None:
        ref = words.pop(0) if len(words) > 1 else "main"
    if len(words) > 1:
        raise typer.BadParameter(f"too many arguments: {' '.join(words[1:])}")
    path = words[0].lstrip("/")
    with open_lake_to_read(root, remote) as lake, suggesting_existing_names(lake, repository, ref):
        try:
            output.contents(lake.read(repository, ref, path))
        except LakeNotFound as missing:
            lake.commit_at(repository, ref)
            raise LakeNotFound(describe_missing_object(lake, repository, ref, path)) from missing
