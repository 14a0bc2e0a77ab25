"""The lake port: versioned repositories of objects, as the runtime needs them.

There are three ports, each extending the previous one: `ReadableLake`, `StagingLake` and `PublishingLake`.  A function
takes the narrowest port that it needs, so its signature shows whether it can move a branch that others read.

Every adapter follows these rules (tests/contract/test_lake.py checks them):

- Object paths are strings with `/` between parts, relative to the repository.  Listings are sorted by the path's
  UTF-8 bytes.
- A branch may have uncommitted objects, and `commit` commits them.  Commits never change.
- `create_branch` and `create_tag` are atomic: of several concurrent calls for one name, one succeeds and the others
  raise `LakeConflict`.
- `create_object` is atomic in the same way, on a branch that is never committed: of several concurrent calls for one
  path, one writes its bytes and the others raise `LakeConflict`.
- `merge` and `relocate` end in one of three ways: they return (landed), raise `LakeRefused` / `LakeForbidden` /
  `LakeNotFound` (refused, nothing changed), or raise `LakeUnavailable` (unknown).  They are never retried blindly.
- `merge` returns only if the new commit's parent is the expected head, whether the lake or the adapter checked it.  A
  merge that landed on another commit raises `LandedElsewhere`, and nothing is rolled back.
- Publish calls name a *branch* as their source.  A request in flight has already resolved its source, so dropping that
  branch does not stop it.  Dropping it and then calling `barrier` does.
- A missing repository, ref or object raises `LakeNotFound`.  Dropping something that does not exist is not an error.
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
"""A callback that receives the numbers of files finished and bytes transferred since its previous call.

It may be called from any thread.  Bytes copied from a cache do not count.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a listing.  `checksum` is None if the lake has no checksum of the plain bytes."""

    path: str
    size: int
    checksum: str | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag, and the commit it points to."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class FolderRow:
    """A direct child of a folder: an object or a subfolder.  A subfolder's path ends in `/`, and its size is None."""

    path: str
    size: int | None


@dataclass(frozen=True, slots=True)
class FolderPage:
    """Direct children of a folder, in listing order.  `more` is True if there are more after these."""

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
    """Differences between two commits, in listing order.  `more` is True if there are more after these."""

    rows: Sequence[Change]
    more: bool


@dataclass(frozen=True, slots=True)
class Download:
    """An object to download, and the file to write it to."""

    entry: Entry
    target: Path


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to upload, and the object that it becomes."""

    source: Path
    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Merge:
    """A publication by merge: apply `source` to `target`, as one commit, if the target's head is `expected_head`."""

    source: str
    target: str
    expected_head: str
    message: str
    metadata: Mapping[str, str]
    timeout: float
    level: FenceLevel | None = None
    """The source's `fence_level`, if the caller already knows it."""
    base: str = ""
    """The source's base commit, if known.  Merging onto exactly that commit produces the source's own content."""
    fail_fast_when_busy: bool = False
    """If the lake is busy, raise `HeadMoved` at once instead of retrying, because the head may have moved."""
    squash: bool = True
    """If False, the source's head becomes the new commit's second parent, so that a later merge starts from there."""
    allow_empty: bool = False
    """If True, a commit is made even if it changes no object."""


class ReadableLake(Protocol):
    """A lake that can be read: its commits, listings, differences, bytes and fence levels."""

    checksum_algorithm: str
    """The hashlib name of the hash in `Entry.checksum` and `Upload.checksum`."""

    relocation_level: FenceLevel
    """`hard` if the lake itself checks the head in `relocate`, else `soft`."""

    def server(self) -> str:
        """Return the server's name and version.  Raises `LakeError` if it is a different kind of server."""

    def repositories(self) -> Sequence[str]:
        """Return the names of all repositories."""

    def commit_at(self, repository: str, ref: str) -> Commit:
        """Return the commit named by a branch, tag, commit id or unique prefix of a commit id."""

    def head(self, repository: str, branch: str) -> Commit:
        """Return the commit that a branch points to now."""

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Yield at most `limit` commits, newest first, following first parents from `ref`."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose path starts with `prefix` (which ends in `/` or is empty).

        For a branch, its uncommitted objects are included.
        """

    def folder(self, repository: str, commit: str, prefix: str, *, after: str = "", limit: int) -> FolderPage:
        """Return at most `limit` direct children of `prefix`, starting after the row `after`.

        `prefix` ends in `/` or is empty.
        The cost depends on the number of rows returned, not on the number of objects in the folders.
        """

    def stat(self, repository: str, ref: str, path: str) -> Entry:
        """Return the listing entry of the object at exactly this path."""

    def download(
        self,
        repository: str,
        ref: str,
        files: Sequence[Download],
        progress: Progress | None = None,
        *,
        verification: Verification | None = None,
    ) -> Mapping[str, str]:
        """Write the objects to their files, and return their checksums by object path.  The folders must exist.

        On return, every object has been verified, except those deferred to `verification`, if one is passed.  For the
        deferred objects, the checksum from the listing is returned, and `verification.wait` raises if one
        of them is damaged.
        """

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in chunks."""

    def read_range(self, repository: str, ref: str, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`, or fewer if the object ends earlier.

        `start` must lie inside the object.
        """

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the branches whose name starts with `prefix`, including hidden ones."""

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the tags whose name starts with `prefix`."""

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        """Return whether a branch has uncommitted changes."""

    def uncommitted_paths(
        self, repository: str, branch: str, *, prefix: str = "", after: str = ""
    ) -> Iterator[str]:
        """Yield the paths that have uncommitted changes, including deletions, in order.

        Only paths that start with `prefix` and follow `after` are included.
        """

    def diff_paths(self, repository: str, left: str, right: str, roots: Sequence[str]) -> Iterator[str]:
        """Yield the paths whose objects differ between two commits, root by root.

        A root is an object or a folder, and matches whole path parts: `plays` never includes `plays-old`.  A root that
        ends in `/` or is empty is a folder.
        """

    def changes(
        self, repository: str, left: str, right: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Changes:
        """Return at most `limit` changes from commit `left` to commit `right`.

        Only paths that start with `prefix` and follow `after` are included.
        """

    def conflicts(self, repository: str, source: str, target: str, limit: int) -> Sequence[str]:
        """Return at most `limit` paths that two commits have changed differently since their last common ancestor."""

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        """Return `hard` if the lake itself fences a merge whose source is `ref`, else `soft`."""

    def fence_gap(self, repository: str, ref: str, branch: str) -> str:
        """Return the reason why the lake cannot fence a merge from `ref` into `branch`, and the remedy."""

    def gates(self, repository: str, ref: str, branch: str) -> Sequence[str]:
        """Return the users' pre-merge actions at `ref` that apply to `branch`.  A relocation would bypass them."""


class StagingLake(ReadableLake, Protocol):
    """A lake that can also be written to, but only on internal branches, where nobody looks for results."""

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Create a branch at `source`.  Raises `LakeConflict` if the name is taken."""

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and its uncommitted objects."""

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Upload files to a branch without committing."""

    def create_object(self, repository: str, branch: str, path: str, content: bytes) -> None:
        """Write one small object to a branch without committing.  Raises `LakeConflict` if the path already exists.

        After `LakeUnavailable` the object may or may not exist, so read it back.
        """

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Delete objects from a branch without committing.  A missing path is not an error."""

    def copy(self, repository: str, branch: str, source: str, paths: Sequence[str]) -> None:
        """Copy objects from the ref `source` to the same paths on a branch, without committing or moving bytes."""

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit a branch's uncommitted changes and return the id.  Raises `NothingToCommit` if there are none."""


class PublishingLake(StagingLake, Protocol):
    """A lake that can also publish: move a target branch, stop a publication in flight, and tag replaced heads."""

    def merge(self, repository: str, merge: Merge) -> str:
        """Publish by three-way merge: apply the changes made on the source since it branched off the target.

        The new commit's first parent is `expected_head`, and its only one if `merge.squash`.  Raises `NothingToCommit`
        if the source changed nothing (unless `merge.allow_empty`).  Raises `HeadMoved` if the fence is hard and the
        target's head is not `expected_head`, or if the target has changed the same paths in the meantime.  Raises
        `BranchDirty` if the target has uncommitted objects, `UnpublishedRun` if the source has the marker of a run and
        the target is not a run branch, and `LandedElsewhere` if the target moved and the lake did not check the head.
        """

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        """Publish by moving `branch` to the head of the branch `source`.

        Raises `HeadMoved` if `branch` is not at `expected_head`.  `timeout` limits the whole operation, in seconds.
        """

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        """Force every in-flight request that publishes to `branch` to start over, and so to resolve its source again.

        Returns only after the lake has confirmed this.  Raises `LakeError` if the lake does not confirm it within
        `timeout` seconds.
        """

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Tag a commit, within `timeout` seconds if given.  Raises `LakeConflict` if the name is taken."""

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""


class Lake(PublishingLake, Protocol):
    """The complete lake port: `PublishingLake`, plus creating repositories and closing the connections."""

    def create_repository(
        self,
        name: str,
        files: Sequence[Upload] = (),
        message: str = "import",
        progress: Progress | None = None,
    ) -> None:
        """Create a repository with `files` on its `main` branch.  Raises `LakeConflict` if the name is taken."""

    def close(self) -> None:
        """Close the connections."""
