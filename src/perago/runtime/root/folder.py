"""The root folder itself: where the embedded servers, runs and workdirs are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perago.errors import RuntimeConfigError

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


@contextmanager
def made_root(root: Path) -> Iterator[None]:
    """Make the root for what keeps its state there; one that takes nothing is told with the way to another one."""
    make_root(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        why = "it is a file" if root.is_file() else error.strerror
        raise RuntimeConfigError(
            f"cannot keep anything in the root {root} ({why}): give a folder that can be written, by --root or PERAGO_ROOT"
        ) from error
