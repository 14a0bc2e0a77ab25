"""`perago cat`: the bytes of one object."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perago.cli.options import Ref, Repository, Root, opened

ObjectPath = Annotated[str, typer.Argument(metavar="PATH", help="The object's path in the repository.")]


def cat(repository: Repository, ref: Ref, path: ObjectPath, root: Root = None) -> None:
    """Write one object's bytes to stdout."""
    with opened(root) as lake:
        for piece in lake.read(repository, ref, path.lstrip("/")):
            sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
