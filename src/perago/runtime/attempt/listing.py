"""What a task sees of one commit: its view, listed root by root.

The rule: nothing outside the view is listed.  A root may be a file, a folder or nothing, and another on the next commit, so
both are asked for: the object of that very name, and what is below it.  `plays` never brings `plays-old/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from perago.errors import LakeNotFound, PreGuardrailViolation
from perago.lake.base import Entry, Lake
from perago.protocol.changes import FileState, FileStates, projected
from perago.protocol.outcome import Outcome
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.lake_lookup import nothing_below

if TYPE_CHECKING:
    from perago.runtime.attempt.publisher import Publisher


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


ASKING_SECONDS = 5.0
"""The failure's result waits no longer than this for the folders' names."""
_SPARK_HAS_NO_FILES = "PATH_NOT_FOUND"


def with_folders(
    outcome: Outcome, error: Exception, publisher: Publisher | None, *, within: float = ASKING_SECONDS
) -> Outcome:
    """The same outcome; if files were missing and the prefix holds none at all, its reason names the folders there are."""
    if publisher is None or not _misses_files(error, outcome):
        return outcome
    asked = publisher.staging.overlap(partial(_hint, publisher.lake, publisher.signature.workspace))
    try:
        hint = asked.result(within)
    except Exception:
        asked.cancel()
        return outcome
    return replace(outcome, reason=f"{outcome.reason} ({hint})") if hint else outcome


def _hint(lake: Lake, workspace: Workspace) -> str:
    """The folders there are, where the prefix holds nothing, or the view that does; else an empty text."""
    view = workspace.view
    if not view.whole:
        found = objects_in(lake, workspace.repository, workspace.ref, view)
        where = f"at {workspace.ref} of repository {workspace.repository!r}"
        return "" if any(True for _ in found) else f"there is nothing at {_named(view)} {where}"
    if not workspace.prefix:
        return ""
    if next(iter(lake.list(workspace.repository, workspace.ref, workspace.prefix)), None) is not None:
        return ""
    return nothing_below(lake, workspace.repository, workspace.ref, workspace.prefix)


def _named(view: View) -> str:
    return " and ".join(repr(root) for root in view.roots)


def _misses_files(error: Exception, outcome: Outcome) -> bool:
    if isinstance(error, PreGuardrailViolation | FileNotFoundError):
        return True
    return _SPARK_HAS_NO_FILES in (outcome.reason or "")
