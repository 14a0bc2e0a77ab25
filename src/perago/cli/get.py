"""`perago get`: copy a folder of one commit to disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, RepositoryAt, Root, read_repository
from perago.cli.server_choice import open_lake_to_read
from perago.runtime.folder_download import download_folder
from perago.runtime.lake_lookup import suggesting_existing_names

Prefix = Annotated[
    str, typer.Argument(metavar="[FOLDER]", help="The folder in the repository; all of it by default.")
]
Target = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="DIR", help="The new folder on disk; by default one of the same name here."
    ),
]


def get(
    where: RepositoryAt,
    prefix: Prefix = "",
    target: Target = None,
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Copy a folder of a branch, tag or commit to disk: as one commit has it, whole or not at all."""
    repository, ref = read_repository(where)
    inner = prefix.strip("/")
    folder = target or Path(inner.rpartition("/")[2] or repository)
    with open_lake_to_read(root, remote) as lake, suggesting_existing_names(lake, repository, ref or "main"):
        done = download_folder(
            lake,
            repository,
            ref or "main",
            f"{inner}/" if inner else "",
            folder,
            show_progress=partial(output.transfer_bar, quiet=as_json),
        )
    if as_json:
        output.data({"commit": done.commit, "folder": str(folder), "files": done.files, "bytes": done.size})
    else:
        output.say(
            f"{folder} has {done.files} file{'' if done.files == 1 else 's'} of {repository} at {done.commit}"
        )
