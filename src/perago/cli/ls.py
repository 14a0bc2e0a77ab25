"""`perago ls`: list the objects at a ref."""

from __future__ import annotations

from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, RepositoryAt, Root, read_repository
from perago.cli.server_choice import open_lake_to_read
from perago.lake.base import Entry, ReadableLake
from perago.runtime.lake_lookup import describe_empty_folder, suggesting_existing_names

Rest = Annotated[
    list[str] | None,
    typer.Argument(metavar="[REF] [PREFIX]", help="The ref, unless REPO names it; then a folder."),
]


def ls(
    where: RepositoryAt, rest: Rest = None, root: Root = None, remote: Remote = None, as_json: AsJson = False
) -> None:
    """List the objects in a branch, tag or commit, with their sizes."""
    repository, ref = read_repository(where)
    words = list(rest or [])
    if ref is None:
        ref = words.pop(0) if words else "main"
    if len(words) > 1:
        raise typer.BadParameter(f"too many arguments: {' '.join(words[1:])}")
    with open_lake_to_read(root, remote) as lake:
        entries = _entries(lake, repository, ref, words[0].strip("/") if words else "")
    if as_json:
        output.data(
            [{"path": entry.path, "size": entry.size, "checksum": entry.checksum} for entry in entries]
        )
        return
    for entry in entries:
        output.say(f"{entry.size:>12}  {entry.path}")


def _entries(lake: ReadableLake, repository: str, ref: str, prefix: str) -> list[Entry]:
    """Return the objects below a prefix, or the single object with that name. Ends the command if there is none."""
    with suggesting_existing_names(lake, repository, ref):
        found = list(lake.list(repository, ref, f"{prefix}/" if prefix else ""))
    if not found and prefix:
        above = prefix.rpartition("/")[0]
        beside = lake.list(repository, ref, f"{above}/" if above else "")
        found = [entry for entry in beside if entry.path == prefix]
        if not found:
            output.fail(describe_empty_folder(lake, repository, ref, f"{prefix}/"))
    return found
