"""The embedded lake: the whole port in one folder, without a server.

    <folder>/lake.db      refs, commits, trees, uncommitted paths, small objects (SQLite, see store)
    <folder>/objects/     larger objects, by checksum (see blob_files)
    <folder>/incoming/    files being added; those left behind by a killed process are removed after a day

Any number of threads and processes may use one folder at once.  Bytes are on disk before a row refers to them.  Each
call that changes a ref is one transaction.  A publish also checks, in its transaction, that the branch is at the
expected head, so the fence is always hard.
"""

from __future__ import annotations

import builtins
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perago.errors import LakeConflict, LakeNotFound, LakeRefused, NothingToCommit
from perago.lake.base import (
    Changes,
    Commit,
    Download,
    Entry,
    FenceLevel,
    FolderPage,
    Merge,
    Progress,
    Ref,
    Upload,
    Verification,
)
from perago.lake.local import refs
from perago.lake.local.blob_files import ALGORITHM, Files
from perago.lake.local.blobs import Objects
from perago.lake.local.fsck import problems
from perago.lake.local.gc import Garbage, Keep, find_garbage, remove_garbage
from perago.lake.local.merge import check_unmoved, conflicting_paths, tree_to_merge
from perago.lake.local.store import BUSY_SECONDS, Store
from perago.lake.local.tree_diff import change_page, differences, folder_page
from perago.lake.local.trees import EMPTY, Value, find, scan, update
from perago.protocol.view import Roots

DEFAULT_BRANCH = "main"

_PARTIAL_FILES_STAY_SECONDS = 24 * 3600


class LocalLake:
    """Implements the lake port in one folder, which is created if it is missing."""

    relocation_level: FenceLevel = "hard"
    checksum_algorithm = ALGORITHM

    def __init__(self, folder: Path, *, clock: Callable[[], int] = time.time_ns) -> None:
        """Open the lake.  `clock` returns nanoseconds since the epoch."""
        # Absolute, because task bodies may change the working directory.
        self._folder = folder = folder.absolute()
        self._clock = clock
        self._files = files = Files(folder)
        files.drop_partial_files(before=clock() / 1e9 - _PARTIAL_FILES_STAY_SECONDS)
        self._store = Store(folder / "lake.db")
        self._objects = Objects(self._store, files)

    def __reduce__(self) -> tuple[type[LocalLake], tuple[Path]]:
        return LocalLake, (self._folder,)

    def server(self) -> str:
        """Return a description of the lake: its kind and its folder."""
        return f"embedded lake in {self._folder}"

    def create_repository(
        self,
        name: str,
        files: Sequence[Upload] = (),
        message: str = "Repository created",
        progress: Progress | None = None,
    ) -> None:
        """Create a repository with `files` in its first commit, on `main`.

        Raises `LakeConflict` if the name is taken.
        """
        refs.check_repository_name(name)
        for file in files:
            refs.check_object_path(file.path)
        with self._write_with(lambda: self._objects.add(files, progress), durable=True) as (db, _):
            cursor = db.execute("INSERT OR IGNORE INTO repositories (name) VALUES (?)", (name,))
            if not cursor.rowcount:
                raise LakeConflict(f"repository {name!r} exists already")
            key = refs.repository_key(db, name)
            tree = self._store.nodes(db).put(EMPTY)
            if files:
                content = {file.path: (file.size, file.checksum) for file in files}
                tree = update(self._store.nodes(db), tree, content)
            first = refs.add_commit(db, key, tree, Commit("", (), message), created_ns=self._clock())
            _add_branch(db, key, DEFAULT_BRANCH, first, hidden=False)

    def repositories(self) -> Sequence[str]:
        """Return the names of all repositories."""
        with self._store.read() as db:
            return [name for (name,) in db.execute("SELECT name FROM repositories ORDER BY name")]

    def commit_at(self, repository: str, ref: str) -> Commit:
        """Return the commit named by a branch, tag, commit id or unique prefix of a commit id."""
        with self._store.read() as db:
            return refs.resolve(db, repository, ref)[0].commit

    def head(self, repository: str, branch: str) -> Commit:
        """Return the commit that a branch points to now."""
        with self._store.read() as db:
            found = refs.find_branch(db, repository, branch)
            return refs.get_commit(db, found.repository, found.head).commit

    def log(self, repository: str, ref: str, limit: int) -> Iterator[Commit]:
        """Yield at most `limit` commits, newest first, following first parents from `ref`."""
        return self._walk(repository, self.commit_at(repository, ref), limit)

    def list(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Return an iterator over the objects below `prefix`, including uncommitted ones if `ref` is a branch."""
        with self._store.read() as db:
            commit, branch = refs.resolve(db, repository, ref)
            staged = refs.staged_below(db, branch, prefix) if branch else {}
        return refs.overlay_staged(scan(self._store.nodes(), commit.tree, prefix), staged)

    def folder(self, repository: str, commit: str, prefix: str, *, after: str = "", limit: int) -> FolderPage:
        """Return at most `limit` direct children of `prefix`, starting after the row `after`."""
        return folder_page(self._store.nodes(), self._tree(repository, commit), prefix, after, limit)

    def stat(self, repository: str, ref: str, path: str) -> Entry:
        """Return the entry of the object at exactly this path, which may be uncommitted if `ref` is a branch."""
        return Entry(path, *self._object(repository, ref, path))

    def download(
        self,
        repository: str,
        ref: str,
        files: Sequence[Download],
        progress: Progress | None = None,
        *,
        verification: Verification | None = None,
    ) -> Mapping[str, str]:
        """Write the objects to their files, whose folders must exist, and return their checksums by object path.

        Nothing is deferred to `verification`.
        """
        # Objects are addressed by checksum, so a listed entry needs no lookup in the tree.
        found = [
            (file, file.entry.checksum or self._object(repository, ref, file.entry.path)[1]) for file in files
        ]
        self._objects.copy_out(found, progress)
        return {file.entry.path: checksum for file, checksum in found}

    def read(self, repository: str, ref: str, path: str) -> Iterator[bytes]:
        """Return an iterator over an object's bytes, in chunks."""
        size, checksum = self._object(repository, ref, path)
        return self._objects.pieces(checksum, size)

    def read_range(self, repository: str, ref: str, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object from `start`."""
        size, checksum = self._object(repository, ref, path)
        return self._objects.part(checksum, size, start, length)

    def create_branch(self, repository: str, name: str, source: str, *, hidden: bool = True) -> None:
        """Create a branch at `source`.  Raises `LakeConflict` if the name is taken."""
        refs.check_ref_name("branch", name)
        with self._store.write(durable=not hidden) as db:
            commit = refs.resolve(db, repository, source)[0].commit
            key = refs.repository_key(db, repository)
            if not _add_branch(db, key, name, commit.id, hidden=hidden):
                raise LakeConflict(f"repository {repository!r} has a branch {name!r} already")

    def branches(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the branches whose name starts with `prefix`, including hidden ones."""
        with self._store.read() as db:
            return refs.list_refs(db, "branches", repository, prefix)

    def drop_branch(self, repository: str, name: str) -> None:
        """Remove a branch and its uncommitted objects.  Raises `LakeRefused` for the default branch, as lakeFS does."""
        if name == DEFAULT_BRANCH:
            raise LakeRefused(f"{name!r} is the default branch of repository {repository!r} and stays")
        with self._store.write(durable=False) as db:
            try:
                branch = refs.find_branch(db, repository, name)
            except LakeNotFound:
                return
            refs.unstage_all(db, branch)
            db.execute("DELETE FROM branches WHERE id = ?", (branch.key,))

    def upload(
        self, repository: str, branch: str, files: Sequence[Upload], progress: Progress | None = None
    ) -> None:
        """Upload files to a branch without committing.  Raises `LakeError` if a file does not match its checksum."""
        for file in files:
            refs.check_object_path(file.path)
        wanted = self._branch(repository, branch)
        with self._write_with(lambda: self._objects.add(files, progress), durable=False) as (db, _):
            self._check_not_dropped(db, repository, wanted)
            refs.stage(db, wanted, {file.path: (file.size, file.checksum) for file in files})

    def create_object(self, repository: str, branch: str, path: str, content: bytes) -> None:
        """Write one small object to a branch without committing.  Raises `LakeConflict` if the path already exists."""
        refs.check_object_path(path)
        # Durable, because the caller acts on the fact that it created the object.
        with self._write_with(lambda: [self._objects.add_bytes(content)], durable=True) as (db, [value]):
            found = refs.find_branch(db, repository, branch)
            staged = refs.staged_at(db, found, path)
            tree = refs.get_commit(db, found.repository, found.head).tree
            if (staged[path] if path in staged else find(self._store.nodes(db), tree, path)) is not None:
                raise LakeConflict(
                    f"branch {branch!r} of repository {repository!r} has an object {path!r} already"
                )
            refs.stage(db, found, {path: value})

    def delete(self, repository: str, branch: str, paths: Sequence[str]) -> None:
        """Delete objects from a branch without committing.  A missing path is not an error."""
        with self._store.write(durable=False) as db:
            found = refs.find_branch(db, repository, branch)
            tree = refs.get_commit(db, found.repository, found.head).tree
            nodes = self._store.nodes(db)
            gone = {path: None for path in paths if find(nodes, tree, path) is not None}
            refs.unstage(db, found, paths)
            refs.stage(db, found, gone)

    def copy(self, repository: str, branch: str, source: str, paths: Sequence[str]) -> None:
        """Copy objects from the ref `source` to the same paths on a branch, without committing."""
        wanted = self._branch(repository, branch)
        with self._store.write(durable=False) as db:
            self._check_not_dropped(db, repository, wanted)
            refs.stage(db, wanted, {path: self._object_in(db, repository, source, path) for path in paths})

    def has_uncommitted_changes(self, repository: str, branch: str) -> bool:
        """Return whether a branch has uncommitted changes."""
        with self._store.read() as db:
            return refs.is_dirty(db, refs.find_branch(db, repository, branch))

    def uncommitted_paths(
        self, repository: str, branch: str, *, prefix: str = "", after: str = ""
    ) -> Iterator[str]:
        """Return an iterator over the paths with uncommitted changes, including deletions, in order."""
        with self._store.read() as db:
            found = refs.staged_below(db, refs.find_branch(db, repository, branch), prefix)
        return (path for path in found if path > after)

    def diff_paths(self, repository: str, left: str, right: str, roots: Sequence[str]) -> Iterator[str]:
        """Yield the paths at or below the roots whose objects differ between two commits, root by root."""
        with self._store.read() as db:
            one, two = (refs.resolve(db, repository, ref)[0].tree for ref in (left, right))
        for root in roots:
            # The root `plays` is an object or a folder, and never includes `plays-old`.
            found, only = differences(self._store.nodes(), one, two, root), Roots([root])
            yield from (path for path, _, _ in found if only.hold(path))

    def changes(
        self, repository: str, left: str, right: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Changes:
        """Return at most `limit` changes from commit `left` to commit `right`."""
        trees = (self._tree(repository, left), self._tree(repository, right))
        return change_page(self._store.nodes(), trees, prefix, after, limit)

    def conflicts(self, repository: str, source: str, target: str, limit: int) -> Sequence[str]:
        """Return at most `limit` paths in which a merge of `source` into `target` would conflict."""
        with self._store.read() as db:
            key = refs.repository_key(db, repository)
            ours, theirs = (refs.resolve(db, repository, ref)[0] for ref in (source, target))
            return conflicting_paths(db, self._store.nodes(), key, ours, theirs)[:limit]

    def commit(self, repository: str, branch: str, message: str, metadata: Mapping[str, str]) -> str:
        """Commit a branch's uncommitted changes and return the id.  Raises `NothingToCommit` if there are none."""
        found = self._branch(repository, branch)
        # A commit on a hidden branch only matters once a publication refers to it, and the publication syncs both.
        with self._store.write(durable=not found.hidden) as db:
            found = self._check_not_dropped(db, repository, found)
            staged = refs.staged_below(db, found, "")
            old = refs.get_commit(db, found.repository, found.head).tree
            tree = update(self._store.nodes(db), old, staged) if staged else old
            refs.unstage_all(db, found)
            if tree != old:
                content = Commit("", (found.head,), message, metadata)
                new = refs.add_commit(db, found.repository, tree, content, created_ns=self._clock())
                refs.move_branch(db, found, new)
                return new
        # Uploads that are identical to the head were cleared too, so the branch is clean.
        raise NothingToCommit(f"commit: no changes on branch {branch!r} of repository {repository!r}")

    def fence_level(self, repository: str, ref: str) -> FenceLevel:
        """Return `hard`, because every merge in this lake is a compare-and-swap."""
        return "hard"

    def fence_gap(self, repository: str, ref: str, branch: str) -> str:
        """Return an empty string, because no merge in this lake is soft."""
        return ""

    def gates(self, repository: str, ref: str, branch: str) -> Sequence[str]:
        """Return an empty sequence, because this lake runs no actions."""
        return ()

    def merge(self, repository: str, merge: Merge) -> str:
        """Publish by three-way merge, as one commit whose first parent is `expected_head`."""
        with self._store.write(durable=True, timeout=merge.timeout) as db:
            source = refs.find_branch(db, repository, merge.source)
            target = refs.find_branch(db, repository, merge.target)
            check_unmoved(db, target, merge.expected_head)
            tree = tree_to_merge(db, self._store.nodes(db), source, target, merge)
            parents = (target.head,) if merge.squash else (target.head, source.head)
            content = Commit("", parents, merge.message, merge.metadata)
            new = refs.add_commit(db, target.repository, tree, content, created_ns=self._clock())
            refs.move_branch(db, target, new)
            return new

    def relocate(self, repository: str, branch: str, source: str, expected_head: str, timeout: float) -> None:
        """Publish by moving `branch` to the head of the branch `source`.

        Raises `HeadMoved` if `branch` is not at `expected_head`.
        """
        with self._store.write(durable=True, timeout=timeout) as db:
            place = refs.find_branch(db, repository, source)
            target = refs.find_branch(db, repository, branch)
            check_unmoved(db, target, expected_head)
            refs.move_branch(db, target, place.head)

    def barrier(self, repository: str, branch: str, timeout: float) -> None:
        """Do nothing, because a publication in this lake is one transaction and therefore never in flight."""

    def create_tag(self, repository: str, name: str, commit: str, *, timeout: float | None = None) -> None:
        """Tag a commit.  Raises `LakeConflict` if the name is taken."""
        refs.check_ref_name("tag", name)
        with self._store.write(durable=True, timeout=BUSY_SECONDS if timeout is None else timeout) as db:
            found = refs.resolve(db, repository, commit)[0].commit
            key = refs.repository_key(db, repository)
            sql = "INSERT OR IGNORE INTO tags (repository, name, head) VALUES (?, ?, ?)"
            if not db.execute(sql, (key, name, found.id)).rowcount:
                raise LakeConflict(f"repository {repository!r} has a tag {name!r} already")

    def tags(self, repository: str, prefix: str) -> Sequence[Ref]:
        """Return the tags whose name starts with `prefix`."""
        with self._store.read() as db:
            return refs.list_refs(db, "tags", repository, prefix)

    def drop_tag(self, repository: str, name: str) -> None:
        """Remove a tag."""
        with self._store.write(durable=False) as db:
            key = refs.repository_key(db, repository)
            db.execute("DELETE FROM tags WHERE repository = ? AND name = ?", (key, name))

    def fsck(self) -> builtins.list[str]:
        """Check the lake and return one sentence per problem.

        Partial files and unreferenced objects are not problems.
        """
        with self._store.read() as db:
            return problems(db, self._objects)

    def find_garbage(self, *, before: float, keep: Collection[str]) -> Garbage:
        """Return what `remove_garbage` would remove now."""
        return find_garbage(self._store, self._files, Keep(int(before * 1e9), keep))

    def remove_garbage(self, *, before: float, keep: Collection[str]) -> Garbage:
        """Remove the commits, trees and objects that no ref leads to.  Other processes may use the lake meanwhile.

        Commits made at or after `before`, in seconds since the epoch, and the commits `keep` stay, with their history.
        """
        return remove_garbage(self._store, self._files, Keep(int(before * 1e9), keep))

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    def _walk(self, repository: str, commit: Commit, limit: int) -> Iterator[Commit]:
        for _ in range(limit):
            yield commit
            if not commit.parents:
                return
            commit = self.commit_at(repository, commit.parents[0])

    def _object(self, repository: str, ref: str, path: str) -> Value:
        with self._store.read() as db:
            return self._object_in(db, repository, ref, path)

    def _object_in(self, db: sqlite3.Connection, repository: str, ref: str, path: str) -> Value:
        commit, branch = refs.resolve(db, repository, ref)
        staged = refs.staged_at(db, branch, path) if branch else {}
        found = staged[path] if path in staged else find(self._store.nodes(db), commit.tree, path)
        if found is None:
            raise LakeNotFound(f"there is no object {path!r} at {ref!r} of repository {repository!r}")
        return found

    @contextmanager
    def _write_with(
        self, add: Callable[[], Sequence[Value]], *, durable: bool
    ) -> Iterator[tuple[sqlite3.Connection, Sequence[Value]]]:
        """Add objects by `add`, which returns them, and open a write transaction in which all of them are there."""
        while True:
            added = add()
            with self._store.write(durable=durable) as db:
                # Nothing referred to them yet, so a garbage collection may have removed them in the meantime.
                if not self._objects.missing(db, added):
                    yield db, added
                    return

    def _tree(self, repository: str, ref: str) -> str:
        with self._store.read() as db:
            return refs.resolve(db, repository, ref)[0].tree

    def _branch(self, repository: str, name: str) -> refs.Branch:
        with self._store.read() as db:
            return refs.find_branch(db, repository, name)

    def _check_not_dropped(self, db: sqlite3.Connection, repository: str, seen: refs.Branch) -> refs.Branch:
        """Return the branch's current row.  Raises `LakeNotFound` if it was dropped, even if its name was reused."""
        branch = refs.find_branch(db, repository, seen.name)
        if branch.key != seen.key:
            raise LakeNotFound(f"branch {seen.name!r} of repository {repository!r} was dropped meanwhile")
        return branch


def _add_branch(db: sqlite3.Connection, repository: int, name: str, head: str, *, hidden: bool) -> bool:
    sql = "INSERT OR IGNORE INTO branches (repository, name, head, hidden) VALUES (?, ?, ?, ?)"
    return bool(db.execute(sql, (repository, name, head, hidden)).rowcount)
