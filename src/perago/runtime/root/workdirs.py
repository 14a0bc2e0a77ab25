"""Folders of executions below a workspace root, as they are made and removed.

A folder has its working name only while it is whole: it is made under another name with its marker in it, and renamed
before it is emptied.  A kill at any moment leaves a name that says what may be done with it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from perago.protocol.names import WorkdirName
from perago.protocol.paths import MARKER
from perago.runtime.root.removal import remove_tree


def make_workdir(root: Path, name: WorkdirName, marker: str) -> None:
    """Make the folder with its marker in it, or not at all."""
    making, path = root / name.making, root / name.working
    making.mkdir(mode=0o700)
    try:
        (making / MARKER).write_text(marker, encoding="utf-8")
        # A rename would take the place of an empty folder.
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        making.rename(path)
    except OSError:
        remove_tree(making)
        raise


def remove_workdir(root: Path, name: WorkdirName) -> None:
    """Remove the folder of an execution, whichever part of its life it is in."""
    remove_tree(root / name.making)
    put_away(root / name.working, root / name.removing)


def put_away(path: Path, removing: Path) -> None:
    """Remove a workdir, under another name.

    Once it is renamed nobody takes it for a workdir any more, half empty as it may be; and if a kill cuts the
    removal, the name says that the rest may go.
    """
    if path != removing:
        # What a removal before this one has left is in the way.
        remove_tree(removing, last=MARKER)
        with contextlib.suppress(FileNotFoundError):
            path.rename(removing)
    if removing.is_symlink() or removing.is_file():
        # A body put it in the folder's place; what it points to is not ours.
        removing.unlink()
    else:
        remove_tree(removing, last=MARKER)
