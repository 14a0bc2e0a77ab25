"""The embedded lake's database: schema, connections and transactions.

The database is SQLite in WAL mode, so readers never wait for a writer.  The rules:

- A connection is used by one thread at a time.  Connections are pooled rather than thread-local, so that a dead thread
  leaks none.  A forked process leaves the inherited connections alone and opens new ones.
- Write transactions begin with IMMEDIATE, so what a transaction has read is still true when it writes.  Every
  compare-and-swap in the lake relies on this.
- `durable` transactions (a commit, a merge, a tag, anything that a caller acts on) are on disk before they return,
  together with all earlier transactions.  The others survive the death of any process, but not a power failure.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from perago.errors import LakeError, LakeUnavailable, storage_remedy
from perago.lake.local.trees import Node, decode, node_id

SCHEMA_VERSION = 1
BUSY_SECONDS = 60.0
CACHED_NODES = 4096
_NOT_WRITABLE = ("SQLITE_READONLY", "SQLITE_CANTOPEN")

_SCHEMA = """
CREATE TABLE repositories (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE commits (
    repository INTEGER NOT NULL, id TEXT NOT NULL, parents TEXT NOT NULL, tree TEXT NOT NULL,
    message TEXT NOT NULL, metadata TEXT NOT NULL, created_ns INTEGER NOT NULL,
    PRIMARY KEY (repository, id));
CREATE TABLE branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice: a dropped branch stays dropped for requests in flight
    repository INTEGER NOT NULL, name TEXT NOT NULL, head TEXT NOT NULL, hidden INTEGER NOT NULL,
    UNIQUE (repository, name));
CREATE TABLE tags (
    repository INTEGER NOT NULL, name TEXT NOT NULL, head TEXT NOT NULL,
    PRIMARY KEY (repository, name)) WITHOUT ROWID;
CREATE TABLE staged (  -- uncommitted objects of a branch; no checksum means removed
    branch INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL, checksum TEXT,
    PRIMARY KEY (branch, path)) WITHOUT ROWID;
CREATE TABLE nodes (id TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE blobs (id TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL);
"""


class Store:
    """The database in a lake's folder, for any number of threads and processes."""

    def __init__(self, file: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._file = file
        self._sleep = sleep
        self._process = os.getpid()
        # deque's append and pop are atomic, so there is no lock that could be held during a fork.
        self._free: deque[_Connection] = deque()
        self._inherited: list[deque[_Connection]] = []
        self._nodes: dict[str, Node] = {}

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open a read transaction.  Everything read in it comes from one snapshot."""
        return self._transaction("BEGIN", "")

    def write(
        self, *, durable: bool, timeout: float = BUSY_SECONDS
    ) -> AbstractContextManager[sqlite3.Connection]:
        """Open a write transaction.  Only one can be open at a time.  An exception in the block rolls it back."""
        return self._transaction("BEGIN IMMEDIATE", "FULL" if durable else "NORMAL", timeout)

    def nodes(self, db: sqlite3.Connection | None = None) -> TreeNodes:
        """Return the store's tree nodes, for use in the transaction `db` if one is passed."""
        return TreeNodes(self, db, self._nodes)

    def body(self, table: str, name: str) -> bytes | None:
        """Return the bytes of a node or blob, or None.  This needs no transaction, because they never change."""
        with self._connection() as db:
            return _body(db, table, name)

    def add_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Store bytes under their checksums."""
        with self.write(durable=False) as db:
            db.executemany("INSERT OR IGNORE INTO blobs (id, body) VALUES (?, ?)", blobs)

    def compact(self) -> None:
        """Give free space in the database file back to the system.  Readers continue, and writers wait."""
        with self._connection() as db:
            if db.execute("PRAGMA freelist_count").fetchone()[0]:
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close the idle connections.  The store opens new ones when it is used again."""
        self._leave_inherited()
        while self._free:
            self._free.pop().close()

    @contextmanager
    def _transaction(
        self, begin: str, synchronous: str, timeout: float = BUSY_SECONDS
    ) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction: commit at the end, or roll back on any exception."""
        with self._connection(timeout) as db:
            if synchronous:
                db.set("synchronous", synchronous)
            db.execute(begin)
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _connection(self, timeout: float = BUSY_SECONDS) -> Iterator[_Connection]:
        self._leave_inherited()
        free = self._free
        try:
            try:
                db = free.pop()
            except IndexError:
                db = self._open()
            try:
                db.set("busy_timeout", max(1, int(timeout * 1000)))
                yield db
            finally:
                self._give_back(free, db)
        except sqlite3.Error as error:
            raise LakeUnavailable(f"embedded lake {self._file}: {error}{storage_remedy(error)}") from error

    def _give_back(self, free: deque[_Connection], db: _Connection) -> None:
        """Return a connection to the pool, or close it if it may be inside a transaction."""
        if db.in_transaction:
            db.close()
        else:
            free.append(db)

    def _leave_inherited(self) -> None:
        """Set inherited connections aside after a fork.  Closing them could break the parent's connections."""
        if self._process != os.getpid():
            self._inherited.append(self._free)
            self._free = deque()
            self._process = os.getpid()

    def _open(self) -> _Connection:
        """Open a connection.  If the folder is not writable, the connection is read-only, and writes fail."""
        try:
            return self._connect("mode=rwc", create=True)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NOT_WRITABLE) or not self._file.is_file():
                raise
        try:
            return self._connect("mode=ro", create=False)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NOT_WRITABLE):
                raise
        # No process has the file open, and SQLite cannot create its side files: treat the file as immutable.
        return self._connect("mode=ro&immutable=1", create=False)

    def _connect(self, mode: str, *, create: bool) -> _Connection:
        db = sqlite3.connect(
            f"{self._file.absolute().as_uri()}?{mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        try:
            if create:
                self._use_wal(db)
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                self._create(db)
        except BaseException:
            db.close()
            raise
        return db

    def _use_wal(self, db: sqlite3.Connection) -> None:
        """Switch to WAL mode, retrying while the database is locked.

        SQLite does not wait for this lock itself if several processes create the lake at once.
        """
        for _ in range(1000):
            try:
                db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                self._sleep(0.01)
        raise LakeUnavailable(f"embedded lake {self._file}: another process keeps the database locked")

    def _create(self, db: _Connection) -> None:
        """Create the tables in one transaction.  If it fails, the caller closes the connection, which rolls it back."""
        db.set("synchronous", "FULL")
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA.split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise LakeError(
                f"embedded lake {self._file} has format {version}, and this Perago reads {SCHEMA_VERSION}: "
                "use the Perago version that created it, or another root"
            )
        db.execute("COMMIT")


class _Connection(sqlite3.Connection):
    """A connection that remembers its PRAGMA settings, and skips a PRAGMA that would change nothing.

    Most calls would change nothing, yet SQLite compiles every PRAGMA that it receives.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._settings: dict[str, str | int] = {}

    def set(self, name: str, value: str | int) -> None:
        """Set a PRAGMA on this connection, unless it already has this value.  Call this only outside a transaction."""
        if self._settings.get(name) != value:
            self.execute(f"PRAGMA {name} = {value}")
            self._settings[name] = value


class TreeNodes:
    """Implements `trees.Nodes` on the database.  Decoded nodes are cached, because they never change."""

    def __init__(self, store: Store, db: sqlite3.Connection | None, cache: dict[str, Node]) -> None:
        self._store = store
        self._db = db
        self._cache = cache

    def get(self, node: str) -> Node:
        """Return the node with this id.  Raises `LakeError` if it is missing."""
        found = self._cache.get(node)
        if found is None:
            body = _body(self._db, "nodes", node) if self._db else self._store.body("nodes", node)
            if body is None:
                raise LakeError(f"embedded lake: tree node {node} is missing; `fsck` reports what is lost")
            found = decode(body)
            self._remember(node, found)
        return found

    def put(self, node: Node) -> str:
        """Store a node and return its id.  Raises `LakeError` outside a transaction."""
        if self._db is None:
            raise LakeError("embedded lake: tree nodes are written inside a transaction")
        body = node.encode()
        name = node_id(body)
        self._db.execute("INSERT OR IGNORE INTO nodes (id, body) VALUES (?, ?)", (name, body))
        self._remember(name, node)
        return name

    def _remember(self, name: str, node: Node) -> None:
        # A node from a rolled-back transaction may stay cached, because its id determines its content.
        if len(self._cache) >= CACHED_NODES:
            self._cache.clear()
        self._cache[name] = node


def _body(db: sqlite3.Connection, table: str, name: str) -> bytes | None:
    row = db.execute(f"SELECT body FROM {table} WHERE id = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])
