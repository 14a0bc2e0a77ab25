"""`changes`: the files that a task's input has gained, changed or lost since the task's last publication.

The function only finds the reader that belongs to a workspace.  While an attempt runs, the runtime's reader asks the lake.
Outside an attempt, as in a plain unit test, there is no publication to compare with, so all files count as added.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perago.errors import TaskFailed

_FILE = "file://"
_readers: dict[str, ChangeReader] = {}


@dataclass(frozen=True, slots=True)
class InputChanges:
    """The changes below a path since the task's last publication, as sorted paths in the workspace.

    It is false if nothing has changed.
    """

    added: tuple[str, ...] = ()
    """The files that the last publication had not seen."""
    changed: tuple[str, ...] = ()
    """The files with other bytes than the last publication had seen."""
    removed: tuple[str, ...] = ()
    """The files that are no longer there."""
    since: str | None = None
    """The commit of the task's last publication. None if all files count as added."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    @property
    def present(self) -> tuple[str, ...]:
        """The files that were added or changed, sorted."""
        return tuple(sorted((*self.added, *self.changed)))


class ChangeReader(Protocol):
    """Reads what has changed below a path of one attempt's workspace."""

    def __call__(self, path: str, *, full: bool) -> InputChanges:
        """Return the changes below a path.  With `full`, all files count as added."""


class TableWorkspace(Protocol):
    """A `SparkWorkspace`."""

    @property
    def base(self) -> str:
        """The URI of the task's prefix."""


def changes(workspace: Path | TableWorkspace, path: str, *, full: bool = False) -> InputChanges:
    """Return what has changed in a file or folder of the workspace since the task's last publication on this branch.

    A file has changed if its bytes differ. On the first run, all files count as added. The publication is the one whose
    output is on the branch now, so a crash, a retry or a replaced publication neither skips nor repeats a file in what is
    published.

    Args:
        workspace: The workspace that the body got: a path, or a `SparkWorkspace`.
        path: A file or folder below the task's prefix that the task reads, and may not change.
        full: True to treat all files as added.
    """
    if isinstance(workspace, str | os.PathLike):
        key = os.path.abspath(workspace)
        return _readers.get(key, _FolderReader(Path(key)))(path, full=full)
    if workspace.base in _readers:
        return _readers[workspace.base](path, full=full)
    if workspace.base.startswith(_FILE):
        folder = workspace.base.removeprefix(_FILE)
        return _readers.get(folder, _FolderReader(Path(folder)))(path, full=full)
    raise TaskFailed(
        f"nothing is known of changes in {workspace.base}, which is no workspace of a running attempt"
    )


@contextmanager
def reading_changes(place: str, reader: ChangeReader) -> Iterator[None]:
    """Answer `changes` with this reader while the block runs, for the workspace in this folder or at this URI."""
    _readers[place] = reader
    try:
        yield
    finally:
        _readers.pop(place, None)


@dataclass(frozen=True, slots=True)
class _FolderReader:
    """Counts every file in a folder as added: there is no attempt, so nothing was published before."""

    folder: Path

    def __call__(self, path: str, *, full: bool) -> InputChanges:
        place = self.folder / path
        files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
        return InputChanges(added=tuple(sorted(file.relative_to(self.folder).as_posix() for file in files)))
