"""The lake port on a lakeFS server: metadata through its API, bytes through the gateway or presigned URLs (`transfer`).

Differences from the embedded lake:

- The server checks a merge's expected head only if the staging commit carries the fence file (see fence) and the server
  has been observed to run it (see fence_probe).  Otherwise this adapter reads the head right before the merge, and the
  head may still move between the two calls.  After every merge it reads the new commit's parent, because a server that
  checked heads earlier may have been reconfigured not to.
- No server checks the head on a hard reset.  The adapter reads the head right before the reset, and the head may still
  move between the two calls.
- A publish request is in flight between resolving its source and swapping the target's record, even after its client
  has disconnected.  `barrier` rewrites that record, so that the request's compare-and-swap fails and the request has to
  resolve its source again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from perago.errors import (
    HeadMoved,
    LakeBusy,
    LakeConflict,
    LakeError,
    LakeUnavailable,
    LandedElsewhere,
)
from perago.lake.base import (
    Changes,
    Download,
    Entry,
    FenceLevel,
    FolderPage,
    Merge,
    Progress,
    Upload,
    Verification,
)
from perago.lake.lakefs import api
from perago.lake.lakefs.barrier import send_barrier
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.fence import Levels, Recent
from perago.lake.lakefs.fence_probe import FenceProof
from perago.lake.lakefs.listing import (
    Listings,
    change_page,
    conflicting_paths,
    differing_paths,
    folder_page,
    is_dirty,
    repository_names,
    uncommitted_paths,
)
from perago.lake.lakefs.objects import copy_objects, create_object, delete_objects
from perago.lake.lakefs.premerge_actions import Gates
from perago.lake.lakefs.refs import Refs, create_repository, server_name, store_of
from perago.lake.lakefs.transfer.routing import TransferMode
from perago.lake.lakefs.transfer.transfer import Transfer
from perago.protocol.metadata import EXPECTED_HEAD

_LEAST_SECONDS = 0.1
"""The minimum timeout of a publish call, used if reading the head has taken almost all of the available time."""

_COMMIT_ID = re.compile(r"[0-9a-f]{64}")


class LakeFSLake(Refs):
    """Implements the lake port on one lakeFS server. Thread-safe."""

    checksum_algorithm = "md5"
    relocation_level: FenceLevel = "soft"

    def __init__(
        self,
        endpoint: str,
        *,
        access_key_id: str,
        secret_access_key: str,
        cache_dir: Path,
        cache_bytes: int,
        transfer: TransferMode = "auto",
        options: Options | None = None,
    ) -> None:
        options = options or Options()
        endpoint = endpoint.rstrip("/").removesuffix("/api/v1")
        keys = (access_key_id, secret_access_key)
        super().__init__(LakeFSClient(endpoint, keys, options))
        self._cache = Cache(cache_dir, cache_bytes)
        self._transfer = Transfer(endpoint, keys, self._client, options, self._cache, mode=transfer)
        self._listings = Listings(endpoint, self._client, self._cache)
        self._options = options
        self._fence_proof = FenceProof(self._client, options.clock)
        self._levels = Levels(self._transfer.read, self._fence_proof.doubt)
        self._gates = Gates(self._listings.entries, self._transfer.read)
        self._staged: Recent[str] = Recent()

    def server(self) -> str:
        """Return the lakeFS edition and version.  Raises `LakeUnavailable` if the server is not lakeFS."""
        return server_name(self._client)

    def storage(self) -> tuple[str, bool]:
        """Return the kind of object store behind lakeFS, and whether it supports presigned URLs."""
        return store_of(self._client)

    def create_repository(
        self,
        name: str,
        files: Sequence[Upload] = (),
        message: str = "import",
        progress: Progress | None = None,
    ) -> None:
        """Create a repository.  The `files`, if any, become the second commit on its `main` branch."""
        create_repository(self._client, name)
        if files:
            self.upload(name, "main", files, progress)
            self.commit(name, "main", message, {})

    def repositories(self) -> Sequence[str]:
        """Return the names of all repositories."""
        return repository_names(self._client)

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose path starts with `prefix`, including uncommitted ones if `ref` is a branch."""
        return self._listings.entries(repository, ref, prefix)

    def folder(self, repository: str, commit: str, prefix: str, *, after: str = "", limit: int) -> FolderPage:
        """Return at most `limit` direct children of `prefix` that come after the row `after`."""
        return folder_page(self._client, (repository, commit), prefix, after, limit)

    def stat(self, repository: str, ref: str, path: str) -> Entry:
        """Return the object at exactly this path.  On a branch, it may be uncommitted."""
        return self._listings.entry(repository, ref, path)

    def download(
        self,
        repository: str,
        ref: str,
        files: Sequence[Download],
        progress: Progress | None = None,
        *,
        verification: Verification | None = None,
    ) -> Mapping[str, str]:
        """Write the objects to their files, whose folders must exist.  Returns the checksums by object path."""
        return self._transfer.download((repository, ref), files, progress, verification)

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """Yield an object's bytes in pieces."""
        return self._transfer.read(repository, ref, path)

    def read_range(self, repository: str, ref: str, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object, starting at `start`."""
        return self._transfer.read_range(repository, ref, path, (start, start + length))

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Upload files to a branch without committing.  Raises `LakeError` if a file does not match its checksum."""
        self._transfer.upload(repository, branch, files, progress)

    def create_object(self, repository: str, branch: str, path: str, content: bytes) -> None:
        """Create a small object on a branch without committing.  Raises `LakeConflict` if the path already exists."""
        create_object(self._client, repository, branch, path, content)

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Delete objects from a branch without committing.  A missing path is not an error."""
        delete_objects(self._client, repository, branch, paths)

    def copy(self, repository: str, branch: str, source: str, paths: Sequence[str]) -> None:
        """Copy objects on the server, from the ref `source` to the same paths on a branch, without committing."""
        copy_objects(self._client, repository, branch, source, paths, self._options.parallel)

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        """Return whether a branch has uncommitted changes."""
        return is_dirty(self._client, repository, branch)

    def uncommitted_paths(
        self, repository: str, branch: str, *, prefix: str = "", after: str = ""
    ) -> Iterator[str]:
        """Yield the paths with uncommitted changes, including deletions, in order."""
        return uncommitted_paths(self._client, repository, branch, prefix, after)

    def diff_paths(self, repository: str, left: str, right: str, roots: Sequence[str]) -> Iterator[str]:
        """Yield the paths at or below the roots whose objects differ between two commits, root by root."""
        return differing_paths(self._client, repository, left, right, roots)

    def changes(
        self, repository: str, left: str, right: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Changes:
        """Return at most `limit` differences between the commits `left` and `right`."""
        return change_page(self._client, (repository, left, right), prefix, after, limit)

    def conflicts(self, repository: str, source: str, target: str, limit: int) -> Sequence[str]:
        """Return at most `limit` paths in which a merge of `source` into `target` would conflict."""
        return conflicting_paths(self._client, (repository, source, target), limit)

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit a branch's changes and return the commit id.  Raises `NothingToCommit` if there are none."""
        doing = f"commit branch {branch!r} of repository {repository!r}"
        try:
            answer = self._client.call(
                doing,
                api.commit(repository, branch, message, metadata),
                repeat=Repeat.UNSENT,
                timeout=self._options.commit_timeout,
            )
            made = str(answer["id"])
        except LakeUnavailable as error:
            made = self._landed_commit(repository, branch, (message, dict(metadata)), error)
        self._staged.keep(repository, branch, made)
        return made

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        """Return `hard` if the server checks the head for a merge from `ref`, else `soft`.

        The server checks the head if `ref` carries the unmodified fence file and the server runs that file.
        """
        return self._levels.of(repository, self._commit_id(repository, ref))

    def fence_gap(self, repository: str, ref: str, branch: str) -> str:
        """Return why the server cannot fence a merge from `ref` into `branch`, and the remedy."""
        return self._levels.fence_gap(repository, self._commit_id(repository, ref), branch)

    def gates(self, repository: str, ref: str, branch: str) -> Sequence[str]:
        """Return the pre-merge actions at `ref` that apply to `branch`, excluding Perago's unmodified fence file."""
        return self._gates.of(repository, self._commit_id(repository, ref), branch)

    def merge(self, repository: str, merge: Merge) -> str:
        """Publish by three-way merge, as one commit whose first parent is `expected_head`."""
        doing = f"merge {merge.source!r} into branch {merge.target!r} of repository {repository!r}"
        level, left = merge.level or self._source_level(repository, merge.source), merge.timeout
        if level == "soft":
            left = self._check_head(repository, merge.target, merge.expected_head, left, doing)
        request = api.merge_into_branch(
            repository,
            merge.source,
            merge.target,
            message=merge.message,
            metadata={**merge.metadata, EXPECTED_HEAD: merge.expected_head},
            squash=merge.squash,
            allow_empty=merge.allow_empty,
        )
        try:
            answer = self._client.call(
                doing,
                request,
                repeat=Repeat.UNSEEN if merge.fail_fast_when_busy else Repeat.UNSENT,
                timeout=left,
            )
        except LakeConflict as error:
            # The paths changed by the source are identical at the expected head and at the source's base, so a conflict
            # means that the head has moved.
            raise HeadMoved(
                f"{doing}: the branch moved on from {merge.expected_head}, and conflicts"
            ) from error
        except LakeBusy as error:
            if merge.fail_fast_when_busy:
                raise HeadMoved(str(error)) from error
            raise
        try:
            made = str(answer["reference"])
        except (KeyError, TypeError):
            raise LakeUnavailable(f"{doing}: the answer names no commit, so it is not lakeFS's") from None
        self._check_parent(repository, merge, made, level, doing)
        if merge.level == "hard" and merge.base == merge.expected_head:
            # The commit has the same content as the source, which carries the fence: the next attempt need not read it.
            self._levels.note_fenced(repository, made)
        return made

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        """Publish by moving `branch` to the head of the branch `source`.

        Raises `HeadMoved` if `branch` is not at `expected_head`.
        """
        doing = f"move branch {branch!r} of repository {repository!r} to {source!r}"
        left = self._check_head(repository, branch, expected_head, timeout, doing)
        self._client.call(
            doing,
            api.hard_reset_branch(repository, branch, source),
            repeat=Repeat.UNSENT,
            status=204,
            timeout=left,
        )

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        """Rewrite the branch's record.  In-flight publish requests then fail their compare-and-swap and start over."""
        send_barrier(self._client, self._options, repository, branch, timeout)

    def close(self) -> None:
        """Close the connections."""
        self._transfer.close()
        self._client.close()
        self._cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_head(self, repository: str, branch: str, expected: str, timeout: float, doing: str) -> float:
        """Raise `HeadMoved` unless the branch is at `expected`.  Returns the time left, at least `_LEAST_SECONDS`."""
        ends = self._options.clock() + timeout
        now = self.head(repository, branch, timeout=timeout).id
        if now != expected:
            raise HeadMoved(f"{doing}: expected head {expected} but the branch is at {now}")
        return max(ends - self._options.clock(), _LEAST_SECONDS)

    def _check_parent(self, repository: str, merge: Merge, made: str, level: FenceLevel, doing: str) -> None:
        """Raise `LandedElsewhere` if the merge landed on a commit other than the expected head."""
        try:
            parent = self.commit_at(repository, made).first_parent
        except LakeError as error:
            raise LakeUnavailable(
                f"{doing}: it made {made}, whose parent could not be read: {error}"
            ) from error
        if parent == merge.expected_head:
            return
        if level == "hard":
            self._fence_proof.forget()
        raise LandedElsewhere(
            f"{doing}: commit {made} landed on {parent}, not on the expected head {merge.expected_head}; nothing is "
            "rolled back",
            made,
        )

    def _landed_commit(
        self, repository: str, branch: str, wanted: tuple[str, Mapping[str, str]], error: LakeUnavailable
    ) -> str:
        """Return the head's id if the commit was made and only the response was lost.  Otherwise raises `error`."""
        try:
            head = self.head(repository, branch)
            ours = (head.message, dict(head.metadata)) == wanted
            # A staging branch has one writer: if our message and metadata are at its head and nothing is uncommitted,
            # the commit has landed.
            landed = ours and not self.has_uncommitted_changes(repository, branch)
        except LakeError:
            landed = False
        if not landed:
            raise error
        return head.id

    def _commit_id(self, repository: str, ref: str) -> str:
        return ref if _COMMIT_ID.fullmatch(ref) else self.commit_at(repository, ref).id

    def _source_level(self, repository: str, source: str) -> FenceLevel:
        return self.fence_level(repository, self._staged.get(repository, source) or source)
