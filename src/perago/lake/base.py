"""The lake port: versioned repositories of objects, as the runtime needs them.

Three ports say who needs what, each with more than the one before: `ReadableLake`, `StagingLake`, `PublishingLake`.  A
function asks for the least that it needs, so its signature says whether it can move a branch that others read.

Every adapter keeps these rules (tests/contract/test_lake.py checks them):

- Object paths are strings with `/` between parts, relative to the repository.  Listings are sorted by the path's
  UTF-8 bytes.
- A branch may hold uncommitted objects; `commit` commits them.  Commits never change.
- `create_branch` and `create_tag` are atomic: of several concurrent calls for one name, one succeeds and the others
  raise `LakeConflict`.
- `create_object` is atomic in the same way, on a branch that is never committed: of several concurrent calls for one
  path, one writes its bytes and the others raise `LakeConflict`.
- `merge` and `relocate` end in one of three ways: they return (landed), raise `LakeRefused` / `LakeForbidden` /
  `LakeNotFound` (refused, nothing changed), or raise `LakeUnavailable` (unknown).  They are never retried blindly.
- `merge` returns only if the new commit's parent is the expected head, whether the lake or the adapter compared; a merge
  that landed on another commit raises `LandedElsewhere`, and nothing is rolled back.
- Publish calls name a *branch* as their source.  A request in flight has resolved its source already, so dropping that
  branch does not stop it; dropping it and then calling `barrier` does.
- Missing things raise `LakeNotFound`; dropping something that does not exist is not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perago.lake.deferred_verification import Verification
from perago.protocol.publication import Commit

__all__ = [
    "Change",
    "Changes",
    "Commit",
    "Download",
    "Entry",
    "FenceLevel",
    "FolderPage",
    "FolderRow",
    "Lake",
    "Merge",
    "Progress",
    "PublishingLake",
    "ReadableLake",
    "Ref",
    "StagingLake",
    "Upload",
    "Verification",
]

FenceLevel = Literal["hard", "soft"]
Progress = Callable[[int, int], None]
"""Called with (files done, bytes moved) since the last call, from any thread; bytes from a cache are not counted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of a listing; `checksum` is None if the lake has no checksum of the plain bytes."""

    path: str
    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag, and the commit it names."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A direct child of a folder: an object, or a folder, whose path ends in `/` and whose size is None."""

    path: str
    size: int | None


@dataclass(frozen=True, slots=True)
class FolderPage:
    """Direct children of a folder, in listing order, and whether more follow."""

    rows: Sequence[FolderRow]
    more: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A path whose object differs between two commits."""

    path: str
    kind: Literal["added", "changed", "removed"]
    size: int | None
    """The object's size at the second commit; None if it was removed."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences between two commits, in listing order, and whether more follow."""

    rows: Sequence[Change]
    more: bool


@dataclass(frozen=True, slots=True)
class Download:
    """An object, and the file to write it to."""

    entry: Entry
    target: Path


@dataclass(frozen=True, slots=True)
class Upload:
    """A file, and the object it becomes."""

    source: Path
    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Merge:
    """A publication by merge: squash `source` onto `target` if its head is `expected_head`."""

    source: str
    target: str
    expected_head: str
    message: str
    metadata: Mapping[str, str]
    timeout: float
    level: FenceLevel | None = None
    """The source's `fence_level`, if the caller has read it."""
    base: str = ""
    """Base commit of the source, if known: merged onto that commit, the result holds nothing but the source."""
    fail_fast_when_busy: bool = False
    """Raise `HeadMoved` at once if the lake is busy, instead of sending the call again: the head may have moved."""


class ReadableLake(Protocol):
    """Reading: commits, listings, differences, bytes, and how strictly a branch is fenced."""

    checksum_algorithm: str
    """The hashlib name of the hash that `Entry.checksum` and `Upload.checksum` hold."""

    relocation_level: FenceLevel
    """`hard` if the lake itself compares heads for `relocate`."""

    def server(self) -> str:
        """Return the server's name and version.  Raises `LakeError` if another kind of server answers."""

    def repositories(self) -> Sequence[str]:
        """Return the names of all repositories."""

    def commit_at(self, repository: str, ref: str) -> Commit:
        """Return the commit that a branch, tag, commit id or unique id prefix names."""

    def head(self, repository: str, branch: str) -> Commit:
        """Return the commit a branch points to now."""

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Yield at most `limit` commits from `ref` along first parents, newest first."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose path starts with `prefix` (which ends in `/` or is empty).

        A branch's uncommitted objects count.
        """

    def folder(self, repository: str, commit: str, prefix: str, *, after: str = "", limit: int) -> FolderPage:
        """Return at most `limit` direct children of `prefix` (which ends in `/` or is empty), after the row `after`.

        The cost depends on what is returned, not on how many objects the folders hold.
        """

    def stat(self, repository: str, ref: str, path: str) -> Entry:
        """Return the object at exactly this path, as a listing shows it."""

    def download(
        self,
        repository: str,
        ref: str,
        files: Sequence[Download],
        progress: Progress | None = None,
        *,
        verification: Verification | None = None,
    ) -> Mapping[str, str]:
        """Write the objects to their files, whose folders exist, and return checksum by object path.

        Every object is verified on return, except those left to `verification`, if one is given: for these the listed
        checksum is returned, and `verification.wait` has the verdict.
        """

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """Yield an object's bytes, in pieces."""

    def read_range(self, repository: str, ref: str, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`, which lies inside it; fewer if the object ends before."""

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the branches whose name starts with `prefix`, hidden ones included."""

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the tags whose name starts with `prefix`."""

    def uncommitted(self, repository: str, branch: str) -> bool:
        """Return whether a branch holds uncommitted changes."""

    def changed_paths(
        self, repository: str, branch: str, *, prefix: str = "", after: str = ""
    ) -> Iterator[str]:
        """Yield, in order, paths with uncommitted changes or deletions that start with `prefix` and follow `after`."""

    def differing(self, repository: str, left: str, right: str, roots: Sequence[str]) -> Iterator[str]:
        """Yield the paths whose objects differ between two commits, root by root.

        A root is an object or a folder, matched by whole path parts: `plays` never includes `plays-old`.  A root that
        ends in `/`, or is empty, is a folder.
        """

    def changes(
        self, repository: str, left: str, right: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Changes:
        """Return at most `limit` differences of `right` from `left` at paths that start with `prefix` and follow `after`."""

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        """Return `hard` if the lake itself fences a merge whose source is `ref`."""

    def fence_gap(self, repository: str, ref: str, branch: str) -> str:
        """Return what a merge from `ref` into `branch` lacks for the lake to fence it, and the remedy."""

    def gates(self, repository: str, ref: str, branch: str) -> Sequence[str]:
        """Return the gates users set at `ref` for merges into `branch`; a relocation would bypass them."""


class StagingLake(ReadableLake, Protocol):
    """Staging: changes on internal branches, which nobody reads as a result."""

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Create a branch at `source`.  Raises `LakeConflict` if the name is taken."""

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and its uncommitted objects."""

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Put files onto a branch, uncommitted."""

    def create_object(self, repository: str, branch: str, path: str, content: bytes) -> None:
        """Put one small object onto a branch, uncommitted.  Raises `LakeConflict` if the path exists already.

        After `LakeUnavailable` the object may exist: read it back.
        """

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Remove objects from a branch, uncommitted; a missing path is not an error."""

    def copy(self, repository: str, branch: str, source: str, paths: Sequence[str]) -> None:
        """Put objects of the ref `source` onto a branch under the same paths, uncommitted, without moving bytes."""

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit a branch's uncommitted changes, and return the commit id.  Raises `NothingToCommit` if there are none."""


class PublishingLake(StagingLake, Protocol):
    """Publishing: the calls that move a target branch or stop one in flight, and tags for what a move takes away."""

    def merge(self, repository: str, merge: Merge) -> str:
        """Publish by three-way squash merge: apply what the source changed since it left the target.

        The new commit has the single parent `expected_head`.  Raises `HeadMoved` if the fence is hard and the target is
        elsewhere, or if the target has changed the same paths since; `BranchDirty` if the target has uncommitted
        objects; `LandedElsewhere` if the target moved and the lake did not compare.
        """

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        """Publish by moving `branch` to the head of branch `source`.  Raises `HeadMoved` if it is not at `expected_head`.

        `timeout` limits the whole operation, in seconds.
        """

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        """Make every publish request in flight into `branch` start over, so that it must resolve its source again.

        Returns only when the lake has confirmed it.  Raises `LakeError` if it does not within `timeout` seconds.
        """

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Tag a commit, within `timeout` seconds if given.  Raises `LakeConflict` if the name is taken."""

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""


class Lake(PublishingLake, Protocol):
    """A whole lake, as a backend opens it."""

    def create_repository(
        self,
        name: str,
        files: Sequence[Upload] = (),
        message: str = "import",
        progress: Progress | None = None,
    ) -> None:
        """Create a repository whose branch `main` holds `files`.  Raises `LakeConflict` if the name is taken."""

    def close(self) -> None:
        """Close the connections."""
