"""`perago ls`: the objects of a ref."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Ref, Repository, Root, opened

Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Show only the objects in this folder.")]


def ls(
    repository: Repository, ref: Ref, prefix: Prefix = "", root: Root = None, as_json: AsJson = False
) -> None:
    """List the objects of a branch, tag or commit, with their sizes."""
    folder = prefix.strip("/") + "/" if prefix.strip("/") else ""
    with opened(root) as lake:
        entries = list(lake.list(repository, ref, folder))
    if as_json:
        output.data(
            [{"path": entry.path, "size": entry.size, "checksum": entry.checksum} for entry in entries]
        )
        return
    for entry in entries:
        output.say(f"{entry.size:>12}  {entry.path}")
