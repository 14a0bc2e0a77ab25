"""Lists the files in the view of one commit, one root path at a time.

Nothing outside the view is listed, except for a hint about an empty prefix, which names the existing folders.  If the
view is only a part of the prefix, the hint does not look outside the view either.  A root may be a file, a folder or
missing, and may be something else at the next commit.  So two requests are made: for the object with exactly that name,
and for the objects below it.  A root `plays` never matches `plays-old/`.

An empty prefix or view is not an error: the task may be the first to write there.  But if an attempt fails because
files are missing, `with_missing_files_hint` adds a hint to the reason.  If the lake fails or is slow to respond, the
reason is left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from perago.errors import LakeNotFound, PreGuardrailViolation
from perago.lake.base import Entry, ReadableLake
from perago.protocol.changes import FileState, FileStates, workdir_path
from perago.protocol.outcome import Outcome
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.lake_lookup import describe_empty_folder

if TYPE_CHECKING:
    from perago.runtime.attempt.publisher import Publisher


HINT_TIMEOUT_SECONDS = 5.0
"""Maximum number of seconds to wait for the hint.  The wait delays the result of a failed attempt."""
_SPARK_HAS_NO_FILES = "PATH_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects in the view of one commit, by path relative to the prefix."""

    files: FileStates
    differing_checksums: FileStates = field(default_factory=FileStates)
    """Original listing entries of objects whose listed checksum is not the checksum of their bytes.

    In `files`, these objects have the checksum of their bytes.
    """

    def correct(self, path: str, checksum: str) -> None:
        """Replace a file's listed checksum with the checksum of its bytes."""
        listed = self.files[path]
        self.differing_checksums.put(path, listed)
        self.files.put(path, FileState(listed.size, checksum), self.files.stat(path))

    def states(self, known: Listing | None = None) -> FileStates:
        """Return the states of all files.

        If an object is listed exactly as in `known`, a corrected checksum in `known` is reused.
        """
        if known is not None:
            for path, listed in known.differing_checksums.items():
                if self.files.get(path) == listed:
                    self.files.put(path, known.files[path])
        return self.files


class LazyStates(Mapping[str, FileState]):
    """The states of all files in a view, listed when they are first needed: only if the result is staged again."""

    def __init__(self, list_files: Callable[[], Mapping[str, FileState]]) -> None:
        self._list_files = list_files

    @cached_property
    def _files(self) -> Mapping[str, FileState]:
        return self._list_files()

    def __getitem__(self, path: str) -> FileState:
        return self._files[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def list_view(lake: ReadableLake, repository: str, ref: str, view: View) -> Listing:
    """List the files that a task may see at a ref."""
    files = FileStates()
    for entry in objects_in(lake, repository, ref, view.roots):
        path = workdir_path(entry.path, entry.size, view.prefix)
        if path is not None:
            files.put(path, FileState(entry.size, entry.checksum))
    return Listing(files)


def objects_in(lake: ReadableLake, repository: str, ref: str, roots: Iterable[str]) -> Iterator[Entry]:
    """Yield the objects at and below these roots, including folder markers and lakeFS's own objects."""
    for root in roots:
        if root.endswith("/") or not root:
            yield from lake.list(repository, ref, root)
        else:
            # List the folder first: a missing ref must raise an error, not look like an empty view.
            yield from lake.list(repository, ref, f"{root}/")
            yield from _file_at(lake, repository, ref, root)


def _file_at(lake: ReadableLake, repository: str, ref: str, path: str) -> Iterator[Entry]:
    try:
        yield lake.stat(repository, ref, path)
    except LakeNotFound:
        return


def with_missing_files_hint(
    outcome: Outcome, error: Exception, publisher: Publisher | None, *, timeout: float = HINT_TIMEOUT_SECONDS
) -> Outcome:
    """Return the outcome, adding a hint to its reason if files were missing and the prefix or view is empty.

    For an empty prefix, the hint names the existing folders.
    """
    if publisher is None or not _misses_files(error, outcome):
        return outcome
    asked = publisher.staging.overlap(partial(_hint, publisher.lake, publisher.signature.workspace))
    try:
        hint = asked.result(timeout)
    except Exception:
        asked.cancel()
        return outcome
    return replace(outcome, reason=f"{outcome.reason} ({hint})") if hint else outcome


def _hint(lake: ReadableLake, workspace: Workspace) -> str:
    """Return a hint if the view is empty, or "" if it is not.

    If the view is a whole prefix, the hint names the existing folders.
    """
    view = workspace.view
    if not view.whole:
        found = objects_in(lake, workspace.repository, workspace.ref, view.roots)
        where = f"at {workspace.ref} of repository {workspace.repository!r}"
        return "" if any(True for _ in found) else f"there is nothing at {_format_roots(view)} {where}"
    if not workspace.prefix:
        return ""
    if next(iter(lake.list(workspace.repository, workspace.ref, workspace.prefix)), None) is not None:
        return ""
    return describe_empty_folder(lake, workspace.repository, workspace.ref, workspace.prefix)


def _format_roots(view: View) -> str:
    return " and ".join(repr(root) for root in view.roots)


def _misses_files(error: Exception, outcome: Outcome) -> bool:
    if isinstance(error, PreGuardrailViolation | FileNotFoundError):
        return True
    return _SPARK_HAS_NO_FILES in (outcome.reason or "")
