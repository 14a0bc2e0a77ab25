"""The root folder itself: where the embedded servers, runs and workdirs are kept."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

IGNORE = ".gitignore"


def make_root(root: Path) -> None:
    """Make the root, if it is not there, and have git ignore all of it.

    A folder that somebody else made is left as it is: it may be a project of theirs.  What goes wrong here goes wrong
    again, and is told, where something is to be kept in the root.
    """
    with suppress(OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir()
        (root / IGNORE).write_text("*\n", encoding="utf-8")
