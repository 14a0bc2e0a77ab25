"""The database rows of the embedded lake's repositories, branches, tags, commits and uncommitted objects.

Every function takes the connection of an open transaction.  Names follow lakeFS's rules, so that anything that runs on
the embedded lake also runs on the real one.  A ref is resolved in lakeFS's order: full commit id, branch, tag, prefix
of a commit id.

A commit's id is the SHA-256 of its parents, tree, message, metadata and time in nanoseconds.  Two commits that
agree in all of these are the same commit.  That is harmless, because the compare-and-swap is on heads, not on
commits.

Uncommitted changes are rows that overlay the head's tree.  A row without a checksum marks a deleted object.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from perago.errors import LakeNotFound, LakeRefused
from perago.lake.base import Commit, Entry, Ref
from perago.lake.local.trees import Value
from perago.protocol.paths import LONGEST_PATH, is_not_unicode

_REPOSITORY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ID_PREFIX = re.compile(r"[0-9a-f]{1,64}")
_COMMIT_COLUMNS = "id, parents, message, metadata, created_ns, tree"


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch's row in the database."""

    key: int
    repository: int
    name: str
    head: str
    hidden: bool


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit, and the id of its tree."""

    commit: Commit
    tree: str


def check_repository_name(name: str) -> None:
    """Raise `LakeRefused` if lakeFS does not allow this repository id."""
    if not _REPOSITORY_NAME.fullmatch(name):
        raise LakeRefused(
            f"repository name {name!r} is not allowed: 3 to 63 lower-case letters, digits and '-', "
            "starting with a letter or digit"
        )


def check_ref_name(kind: str, name: str) -> None:
    """Raise `LakeRefused` if lakeFS does not allow this branch name.  Tags follow the same rule."""
    if not _BRANCH_NAME.fullmatch(name):
        raise LakeRefused(
            f"{kind} name {name!r} is not allowed: letters, digits, '-' and '_', not starting with '-'"
        )


def check_object_path(path: str) -> None:
    """Raise `LakeRefused` if an object path exceeds lakeFS's limit or is not valid Unicode."""
    if is_not_unicode(path):
        raise LakeRefused(f"object path {path!r} is not valid Unicode: rename the file")
    length = len(path.encode())
    if not 0 < length <= LONGEST_PATH:
        raise LakeRefused(f"object path {path!r} has {length} bytes: 1 to {LONGEST_PATH} are allowed")


def repository_key(db: sqlite3.Connection, name: str) -> int:
    """Return a repository's row id.  Raises `LakeNotFound` if there is no such repository."""
    row = db.execute("SELECT id FROM repositories WHERE name = ?", (name,)).fetchone()
    if row is None:
        raise LakeNotFound(f"the embedded lake has no repository {name!r}")
    return int(row[0])


def find_branch(db: sqlite3.Connection, repository: str, name: str) -> Branch:
    """Return a branch by name.  Raises `LakeNotFound` if there is no such branch."""
    branch = _branch(db, repository_key(db, repository), name)
    if branch is None:
        raise LakeNotFound(f"repository {repository!r} has no branch {name!r}")
    return branch


def move_branch(db: sqlite3.Connection, branch: Branch, head: str) -> None:
    """Point a branch at a commit."""
    db.execute("UPDATE branches SET head = ? WHERE id = ?", (head, branch.key))


def resolve(db: sqlite3.Connection, repository: str, ref: str) -> tuple[StoredCommit, Branch | None]:
    """Return the commit that a ref names, and the branch if the ref is a branch."""
    key = repository_key(db, repository)
    commit = _find_commit(db, key, ref)
    if commit is not None:
        return commit, None
    branch = _branch(db, key, ref)
    if branch is not None:
        return get_commit(db, key, branch.head), branch
    row = db.execute("SELECT head FROM tags WHERE repository = ? AND name = ?", (key, ref)).fetchone()
    if row is not None:
        return get_commit(db, key, row[0]), None
    return get_commit(db, key, _by_prefix(db, key, repository, ref)), None


def get_commit(db: sqlite3.Connection, repository: int, commit: str) -> StoredCommit:
    """Return a commit by its full id.  Raises `LakeNotFound` if there is no such commit."""
    found = _find_commit(db, repository, commit)
    if found is None:
        raise LakeNotFound(f"the embedded lake has no commit {commit!r}")
    return found


def add_commit(
    db: sqlite3.Connection, repository: int, tree: str, content: Commit, *, created_ns: int
) -> str:
    """Write a commit with the parents, message and metadata of `content`, and return its id."""
    parents, metadata = json.dumps(content.parents), json.dumps(dict(content.metadata), sort_keys=True)
    commit = commit_id(parents, tree, content.message, metadata, created_ns)
    db.execute(
        "INSERT OR IGNORE INTO commits (repository, id, parents, tree, message, metadata, created_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (repository, commit, parents, tree, content.message, metadata, created_ns),
    )
    return commit


def commit_id(parents: str, tree: str, message: str, metadata: str, created_ns: int) -> str:
    """Compute a commit's id from the values of its database columns."""
    return hashlib.sha256(json.dumps([parents, tree, message, metadata, created_ns]).encode()).hexdigest()


def list_refs(db: sqlite3.Connection, table: str, repository: str, prefix: str) -> list[Ref]:
    """Return the branches or tags whose name starts with `prefix`, sorted by name."""
    sql = f"SELECT name, head FROM {table} WHERE repository = ? AND name >= ? AND name < ? ORDER BY name"
    # Names are ASCII, so DEL sorts after anything that may follow the prefix.
    return [Ref(*row) for row in db.execute(sql, (repository_key(db, repository), prefix, prefix + "\x7f"))]


def _branch(db: sqlite3.Connection, repository: int, name: str) -> Branch | None:
    sql = "SELECT id, repository, name, head, hidden FROM branches WHERE repository = ? AND name = ?"
    row = db.execute(sql, (repository, name)).fetchone()
    return None if row is None else Branch(row[0], row[1], row[2], row[3], bool(row[4]))


def _find_commit(db: sqlite3.Connection, repository: int, commit: str) -> StoredCommit | None:
    sql = f"SELECT {_COMMIT_COLUMNS} FROM commits WHERE repository = ? AND id = ?"
    row = db.execute(sql, (repository, commit)).fetchone()
    if row is None:
        return None
    name, parents, message, metadata, created_ns, tree = row
    found = Commit(name, tuple(json.loads(parents)), message, json.loads(metadata), created_ns / 1e9)
    return StoredCommit(found, tree)


def _by_prefix(db: sqlite3.Connection, key: int, repository: str, prefix: str) -> str:
    """Return the only commit id with this prefix.  Raises `LakeNotFound` if there is none or more than one."""
    rows: list[tuple[str]] = []
    if _ID_PREFIX.fullmatch(prefix):
        sql = "SELECT id FROM commits WHERE repository = ? AND id >= ? AND id < ? LIMIT 2"
        rows = db.execute(sql, (key, prefix, prefix + "g")).fetchall()
    if len(rows) == 1:
        return rows[0][0]
    why = "names more than one commit" if rows else "is no commit, branch or tag"
    raise LakeNotFound(f"ref {prefix!r} {why} of repository {repository!r}")


def stage(db: sqlite3.Connection, branch: Branch, objects: Mapping[str, Value | None]) -> None:
    """Record uncommitted changes on a branch, replacing earlier ones.  A value of None deletes the object."""
    rows = [(branch.key, path, *(value or (0, None))) for path, value in objects.items()]
    db.executemany("INSERT OR REPLACE INTO staged (branch, path, size, checksum) VALUES (?, ?, ?, ?)", rows)


def unstage(db: sqlite3.Connection, branch: Branch, paths: Sequence[str]) -> None:
    """Discard uncommitted changes at these paths."""
    rows = [(branch.key, path) for path in paths]
    db.executemany("DELETE FROM staged WHERE branch = ? AND path = ?", rows)


def unstage_all(db: sqlite3.Connection, branch: Branch) -> None:
    """Discard all uncommitted changes on a branch."""
    db.execute("DELETE FROM staged WHERE branch = ?", (branch.key,))


def is_dirty(db: sqlite3.Connection, branch: Branch) -> bool:
    """Return whether a branch has uncommitted changes."""
    return db.execute("SELECT 1 FROM staged WHERE branch = ? LIMIT 1", (branch.key,)).fetchone() is not None


def staged_at(db: sqlite3.Connection, branch: Branch, path: str) -> dict[str, Value | None]:
    """Return the uncommitted change at one path, as a dict with one item, or an empty dict if there is none."""
    sql = "SELECT path, size, checksum FROM staged WHERE branch = ? AND path = ?"
    return {row[0]: _value(row) for row in db.execute(sql, (branch.key, path))}


def staged_below(db: sqlite3.Connection, branch: Branch, prefix: str) -> dict[str, Value | None]:
    """Return the uncommitted changes below a prefix, sorted by path."""
    sql = "SELECT path, size, checksum FROM staged WHERE branch = ? AND path >= ? ORDER BY path"
    found: dict[str, Value | None] = {}
    for row in db.execute(sql, (branch.key, prefix)):
        if not row[0].startswith(prefix):
            break
        found[row[0]] = _value(row)
    return found


def overlay_staged(
    committed: Iterator[tuple[str, Value]], uncommitted: Mapping[str, Value | None]
) -> Iterator[Entry]:
    """Yield the committed objects overlaid with the uncommitted ones.  The inputs and the result are sorted by path."""
    untouched = (item for item in committed if item[0] not in uncommitted)
    for path, value in merge(untouched, uncommitted.items(), key=lambda item: item[0]):
        if value is not None:
            yield Entry(path, *value)


def _value(row: tuple[str, int, str | None]) -> Value | None:
    _, size, checksum = row
    return None if checksum is None else (size, checksum)
