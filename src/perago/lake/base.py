"""The lake port: versioned repositories of objects, as the runtime needs them.

The rules every adapter keeps (tests/contract/test_lake.py holds them):

- Object paths are strings with `/` between parts, relative to the repository.  Listings come sorted by path's
  UTF-8 bytes.
- A branch may hold uncommitted objects; `commit` takes them in.  Commits never change.
- `create_branch` and `create_tag` are atomic: of several at once for one name, one gets it, the others get
  `LakeConflict`.
- `create_object` is atomic in the same way, on a branch that nobody commits: of several at once for one path, one puts its
  bytes, the others get `LakeConflict`.
- `merge` and `relocate` end in one of three ways: they return (landed), raise `LakeRefused` / `LakeForbidden` /
  `LakeNotFound` (refused, nothing changed), or raise `LakeUnavailable` (unknown).  They are never retried blindly.
- `merge` returns only if the new commit's parent is the expected head, whoever has compared; a merge that landed on
  another commit raises `LandedElsewhere`, and nothing is rolled back.
- Publish calls name a *branch* as their source.  A request in flight has resolved its source already, so dropping that
  branch does not stop it; dropping it and then calling `barrier` does.
- Missing things raise `LakeNotFound`; dropping what is not there is no error.
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
    "Ref",
    "Upload",
    "Verification",
]

FenceLevel = Literal["hard", "soft"]
Progress = Callable[[int, int], None]
"""Called with (files done, bytes moved) since the last call, from any thread; what was in a cache did not move."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of a listing; `checksum` is None where the lake knows none of the plain bytes."""

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
    """What lies right below a folder: an object, or a folder, whose path ends in `/` and whose size is None."""

    path: str
    size: int | None


@dataclass(frozen=True, slots=True)
class FolderPage:
    """Some of what lies right below a folder, in the order of a listing, and whether more follows."""

    rows: Sequence[FolderRow]
    more: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A path whose object differs between two commits."""

    path: str
    kind: Literal["added", "changed", "removed"]
    size: int | None
    """How large it is at the second commit; None where it was removed."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Some of what differs between two commits, in the order of a listing, and whether more follows."""

    rows: Sequence[Change]
    more: bool


@dataclass(frozen=True, slots=True)
class Download:
    """One object, and the file to write it to."""

    entry: Entry
    target: Path


@dataclass(frozen=True, slots=True)
class Upload:
    """One file, and the object it becomes."""

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
    """What `fence_level` says of the source, where the caller has asked."""
    base: str = ""
    """The commit that the source was made at, where the caller knows: merged onto that very commit, it is all there is."""
    put_off_is_an_answer: bool = False
    """Whether a call that the lake puts off raises `HeadMoved` at once, and is not sent again: the head may have moved."""


class Lake(Protocol):
    """What the runtime asks of a lake."""

    checksum_algorithm: str
    """The hashlib name of the hash that `Entry.checksum` and `Upload.checksum` hold."""

    relocation_level: FenceLevel
    """Whether the lake itself compares heads for `relocate`."""

    def server(self) -> str:
        """What it is, with its version; `LakeError` where what answers is something else."""

    def create_repository(
        self,
        name: str,
        files: Sequence[Upload] = (),
        message: str = "import",
        progress: Progress | None = None,
    ) -> None:
        """Make a repository whose branch `main` holds `files`; `LakeConflict` if the name is taken."""

    def repositories(self) -> Sequence[str]:
        """The names of all repositories."""

    def commit_at(self, repository: str, ref: str) -> Commit:
        """The commit that a branch, tag, commit id or unique id prefix names."""

    def head(self, repository: str, branch: str) -> Commit:
        """The commit a branch is at now."""

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Commits from `ref` along first parents, newest first, at most `limit`."""

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Objects whose path starts with `prefix` (which ends in `/` or is empty); a branch's uncommitted
        objects count."""

    def folder(self, repository: str, commit: str, prefix: str, *, after: str = "", limit: int) -> FolderPage:
        """At most `limit` of what lies right below `prefix` (which ends in `/` or is empty), after the row `after`.

        It costs what it returns, however many objects the folders hold.
        """

    def stat(self, repository: str, ref: str, path: str) -> Entry:
        """The one object of this very path, as a listing has it."""

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

        All of it is verified then, but for what is left to `verification`, where one is given: of those objects the
        listed checksum is returned, and `verification.wait` has the verdict.
        """

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """One object's bytes, in pieces."""

    def read_range(self, repository: str, ref: str, path: str, start: int, length: int) -> bytes:
        """So many of one object's bytes from `start`, which lies inside it; fewer where it ends before."""

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Make a branch at `source`; `LakeConflict` if the name is taken."""

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Branches whose name starts with `prefix`, hidden ones included."""

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and what is uncommitted on it."""

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Put files onto a branch, uncommitted."""

    def create_object(self, repository: str, branch: str, path: str, content: bytes) -> None:
        """Put one small object onto a branch, uncommitted; `LakeConflict` if there is one of this path already.

        After `LakeUnavailable` the object may be there: read it back.
        """

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Remove objects from a branch, uncommitted; a path that is not there is no error."""

    def copy(self, repository: str, branch: str, source: str, paths: Sequence[str]) -> None:
        """Put objects of the ref `source` onto a branch under the same paths, uncommitted, without moving bytes."""

    def uncommitted(self, repository: str, branch: str) -> bool:
        """Whether a branch holds uncommitted changes."""

    def changed_paths(
        self, repository: str, branch: str, *, prefix: str = "", after: str = ""
    ) -> Iterator[str]:
        """Paths that begin with `prefix`, come after `after` and have uncommitted changes, deletions included, in
        order."""

    def differing(self, repository: str, left: str, right: str, roots: Sequence[str]) -> Iterator[str]:
        """Paths whose objects differ between two commits, root by root.

        A root is an object or a folder, cut at path parts: `plays` never brings `plays-old`.  One that ends in `/`, or is
        empty, is a folder.
        """

    def changes(
        self, repository: str, left: str, right: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Changes:
        """At most `limit` of what is different at the commit `right`, where paths begin with `prefix` and come after
        `after`."""

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit what is uncommitted on a branch; `NothingToCommit` if that is nothing."""

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        """Whether a merge whose source is `ref` is fenced by the lake itself."""

    def why_soft(self, repository: str, ref: str, branch: str) -> str:
        """What a merge from `ref` into `branch` lacks to be fenced by the lake itself, and what to do."""

    def gates(self, repository: str, ref: str, branch: str) -> Sequence[str]:
        """What people put at `ref` to stand before merges into `branch`, and what a relocation would pass by."""

    def merge(self, repository: str, merge: Merge) -> str:
        """Publish by squash merge, three ways: what the source changed since it left the target, onto the target.

        The new commit has the one parent `expected_head`.  With a hard fence `HeadMoved` if the target is elsewhere;
        `HeadMoved` too where the target has changed the same paths since; `BranchDirty` if it has uncommitted objects;
        `LandedElsewhere` if the target moved and the lake did not compare.
        """

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        """Publish by moving `branch` to the head of branch `source`; `HeadMoved` if it is not at `expected_head`.

        `timeout` is for all of it, in seconds.
        """

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        """Have every publish request into `branch` that is in flight start over, so that it needs its source again.

        Returns only on the lake's own word; `LakeError` where none comes within `timeout` seconds.
        """

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Keep a commit under a name, within `timeout` seconds if given; `LakeConflict` if the name is taken."""

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Tags whose name starts with `prefix`."""

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""

    def close(self) -> None:
        """Give connections back."""
