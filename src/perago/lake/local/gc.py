"""Removes what no ref of the embedded lake leads to any more: commits, tree nodes and objects.

Live is everything that can be reached from a branch, a tag, a commit newer than the cutoff, or a commit that the caller
wants to keep, and whatever is uncommitted on a branch.

This is safe beside any number of processes that use the lake, and may be killed at any point:

- Commits, nodes and small objects are removed in one transaction, which first marks what has become live since the look
  that came before it.
- Larger objects are files.  They are removed after that, in a transaction that writes nothing: nobody can begin to
  refer to one meanwhile, and no commit that is left refers to one that is gone.
- An upload adds its bytes first and refers to them later.  It checks in that second transaction that they are still
  there, and otherwise adds them again (`LocalLake.upload`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perago.lake.local.blob_files import Files
from perago.lake.local.store import Store
from perago.lake.local.trees import decode

_BATCH = 500


@dataclass(frozen=True, slots=True)
class Garbage:
    """The numbers of commits and objects that were or would be removed, and of bytes, those of tree nodes included."""

    commits: int
    objects: int
    bytes: int

    def __bool__(self) -> bool:
        return bool(self.commits or self.objects or self.bytes)


@dataclass(frozen=True, slots=True)
class Keep:
    """Exceptions: commits and files made since `since_ns`, and the commits `ids`, stay although no ref leads to them."""

    since_ns: int
    ids: Collection[str] = ()


def find_garbage(store: Store, files: Files, keep: Keep) -> Garbage:
    """Return what `remove_garbage` would remove now."""
    live = _Live(keep)
    with store.read() as db:
        live.mark(db)
        commits, nodes, blobs = live.dead_rows(db)
    dead_files = [size for checksum, size in files.older_than(keep.since_ns) if checksum not in live.objects]
    size = sum(nodes.values()) + sum(blobs.values()) + sum(dead_files)
    return Garbage(len(commits), len(blobs) + len(dead_files), size)


def remove_garbage(store: Store, files: Files, keep: Keep) -> Garbage:
    """Remove everything that is not live, and give the disk space of the database back to the system."""
    live = _Live(keep)
    with store.read() as db:
        # Most of the work is done here, where nobody has to wait for it.
        live.mark(db)
    with store.write(durable=True) as db:
        live.mark(db)
        commits, nodes, blobs = live.dead_rows(db)
        db.executemany("DELETE FROM commits WHERE repository = ? AND id = ?", commits)
        for table, dead in (("nodes", nodes), ("blobs", blobs)):
            db.executemany(f"DELETE FROM {table} WHERE id = ?", ((name,) for name in dead))
    old = files.older_than(keep.since_ns)
    with store.write(durable=False) as db:
        live.mark(db)
        removed = [size for checksum, size in old if checksum not in live.objects and files.remove(checksum)]
    store.compact()
    size = sum(nodes.values()) + sum(blobs.values()) + sum(removed)
    return Garbage(len(commits), len(blobs) + len(removed), size)


class _Live:
    """The commits, nodes and objects that stay.  Marking again adds only what has become live since."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self.commits: set[tuple[int, str]] = set()
        self.nodes: set[str] = set()
        self.objects: set[str] = set()

    def mark(self, db: sqlite3.Connection) -> None:
        """Mark everything that is live in this transaction's snapshot."""
        known = {
            (repository, commit): (json.loads(parents), tree)
            for repository, commit, parents, tree in db.execute(
                "SELECT repository, id, parents, tree FROM commits"
            )
        }
        todo = [one for one in self._roots(db) if one not in self.commits]
        trees = []
        while todo:
            at = todo.pop()
            if at in self.commits or at not in known:
                continue
            self.commits.add(at)
            parents, tree = known[at]
            trees.append(tree)
            todo += [(at[0], parent) for parent in parents]
        self._mark_trees(db, trees)
        staged = db.execute("SELECT checksum FROM staged WHERE checksum IS NOT NULL")
        self.objects.update(checksum for (checksum,) in staged)

    def dead_rows(
        self, db: sqlite3.Connection
    ) -> tuple[list[tuple[int, str]], dict[str, int], dict[str, int]]:
        """Return the commits that are not live, and the sizes of the nodes and small objects that are not."""
        commits = [row for row in db.execute("SELECT repository, id FROM commits") if row not in self.commits]
        nodes, blobs = (
            {
                name: size
                for name, size in db.execute(f"SELECT id, length(body) FROM {table}")
                if name not in live
            }
            for table, live in (("nodes", self.nodes), ("blobs", self.objects))
        )
        return commits, nodes, blobs

    def _roots(self, db: sqlite3.Connection) -> Iterable[tuple[int, str]]:
        yield from db.execute("SELECT repository, head FROM branches UNION SELECT repository, head FROM tags")
        new = "SELECT repository, id FROM commits WHERE created_ns >= ?"
        yield from db.execute(new, (self._keep.since_ns,))
        for commit in self._keep.ids:
            yield from db.execute("SELECT repository, id FROM commits WHERE id = ?", (commit,))

    def _mark_trees(self, db: sqlite3.Connection, roots: Iterable[str]) -> None:
        todo = {root for root in roots if root not in self.nodes}
        while todo:
            batch = [todo.pop() for _ in range(min(_BATCH, len(todo)))]
            self.nodes.update(batch)
            places = ", ".join("?" * len(batch))
            for (body,) in db.execute(f"SELECT body FROM nodes WHERE id IN ({places})", batch):
                node = decode(body)
                names = {name for _, name in node.values}
                if node.level == 0:
                    self.objects |= names
                else:
                    todo |= names - self.nodes
