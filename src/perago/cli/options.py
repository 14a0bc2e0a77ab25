"""What the commands that look into a lake share: which lake it is, and how refs and sizes are shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perago.connect import open_lake, open_local_lake
from perago.lake.base import Lake
from perago.settings import load_settings

Repository = Annotated[str, typer.Argument(metavar="REPO", help="The repository.")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Look into the embedded lake of this root. Without it: lakeFS where it is configured, else .perago.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def opened(root: Path | None) -> Iterator[Lake]:
    """The lake a command is about, closed afterwards."""
    settings = load_settings(os.environ, root=root)
    lake = open_lake(settings) if root is None else open_local_lake(settings)
    try:
        yield lake
    finally:
        lake.close()


def when(seconds: float) -> str:
    """A moment for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
