"""What a task sees of one commit: its view, listed root by root.

The rule: nothing outside the view is listed.  A root may be a file, a folder or nothing, and another on the next commit, so
both are asked for: the object of that very name, and what is below it.  `plays` never brings `plays-old/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from perago.errors import LakeNotFound
from perago.lake.base import Entry, Lake
from perago.protocol.changes import FileState, projected
from perago.protocol.states import FileStates
from perago.protocol.view import View


@dataclass(frozen=True, slots=True)
class Listing:
    """The view of one commit: its objects by path below the prefix."""

    files: FileStates
    odd: FileStates = field(default_factory=FileStates)
    """How objects are listed whose checksum there is not that of their bytes, which is in `files`."""

    def correct(self, path: str, checksum: str) -> None:
        """Take in the checksum of a file's bytes, where it is listed with another."""
        listed = self.files[path]
        self.odd.put(path, listed)
        self.files.put(path, FileState(listed.size, checksum), self.files.stat(path))

    def states(self, known: Listing | None = None) -> FileStates:
        """The listing as file states; an object listed as it was in `known` has the state that it has there."""
        if known is not None:
            for path, listed in known.odd.items():
                if self.files.get(path) == listed:
                    self.files.put(path, known.files[path])
        return self.files


def list_view(lake: Lake, repository: str, ref: str, view: View) -> Listing:
    """List what a task may see of a ref, as files."""
    files = FileStates()
    for entry in objects_in(lake, repository, ref, view):
        path = projected(entry.path, entry.size, view.prefix)
        if path is not None:
            files.put(path, FileState(entry.size, entry.checksum))
    return Listing(files)


def objects_in(lake: Lake, repository: str, ref: str, view: View) -> Iterator[Entry]:
    """The objects of a view, folder markers and lakeFS's own included."""
    for root in view.roots:
        if root.endswith("/") or not root:
            yield from lake.list(repository, ref, root)
        else:
            # The folder first: where the ref itself is missing, that is an error, and not a view with nothing in it.
            yield from lake.list(repository, ref, f"{root}/")
            yield from _file_at(lake, repository, ref, root)


def _file_at(lake: Lake, repository: str, ref: str, path: str) -> Iterator[Entry]:
    try:
        yield lake.stat(repository, ref, path)
    except LakeNotFound:
        return
