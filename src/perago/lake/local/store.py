"""The embedded lake's database: schema, connections, transactions.

SQLite in WAL mode, so that readers never wait for a writer.  The rules:

- A connection is used by one thread at a time (a pool, not thread locals, so that a dead thread leaks none), and
  never by a forked child: there the inherited ones are left alone and new ones are opened.
- Writers begin IMMEDIATE: what a transaction reads is still true when it writes, which is the compare in every
  compare-and-swap of the lake.
- `durable` transactions (a commit, a merge, a tag, anything a caller acts on) are on disk before they return, and
  with them all that went before.  The others survive the death of any process, but not a power cut.
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

from perago.errors import LakeError, LakeUnavailable
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
    """The database of one lake folder, for any number of threads and processes."""

    def __init__(self, file: Path, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._file = file
        self._sleep = sleep
        self._process = os.getpid()
        # deque's append and pop are atomic, so there is no lock that a fork could leave taken.
        self._free: deque[_Connection] = deque()
        self._inherited: list[deque[_Connection]] = []
        self._nodes: dict[str, Node] = {}

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """A snapshot: all that is read inside is of one moment."""
        return self._transaction("BEGIN", "")

    def write(
        self, *, durable: bool, timeout: float = BUSY_SECONDS
    ) -> AbstractContextManager[sqlite3.Connection]:
        """The one writer; an exception inside leaves everything as it was."""
        return self._transaction("BEGIN IMMEDIATE", "FULL" if durable else "NORMAL", timeout)

    def nodes(self, db: sqlite3.Connection | None = None) -> TreeNodes:
        """The trees' nodes, inside a transaction where one is given."""
        return TreeNodes(self, db, self._nodes)

    def body(self, table: str, name: str) -> bytes | None:
        """The bytes of a node or blob, outside any transaction: they never change."""
        with self._connection() as db:
            return _body(db, table, name)

    def add_blobs(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Keep bytes under their checksums."""
        with self.write(durable=False) as db:
            db.executemany("INSERT OR IGNORE INTO blobs (id, body) VALUES (?, ?)", blobs)

    def close(self) -> None:
        """Close the connections that nobody uses; the store opens new ones when it is used again."""
        self._leave_inherited()
        while self._free:
            self._free.pop().close()

    @contextmanager
    def _transaction(
        self, begin: str, synchronous: str, timeout: float = BUSY_SECONDS
    ) -> Iterator[sqlite3.Connection]:
        """COMMIT at the end of the block, or ROLLBACK on any exception."""
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
            raise LakeUnavailable(f"embedded lake {self._file}: {error}") from error

    def _give_back(self, free: deque[_Connection], db: _Connection) -> None:
        """Only a connection that is sure to be outside any transaction may be used again."""
        if db.in_transaction:
            db.close()
        else:
            free.append(db)

    def _leave_inherited(self) -> None:
        """Closing a connection that a fork copied could break the parent's, so it is kept and not used."""
        if self._process != os.getpid():
            self._inherited.append(self._free)
            self._free = deque()
            self._process = os.getpid()

    def _open(self) -> _Connection:
        """A connection; where the folder may not be written, one to look with: whatever writes fails."""
        try:
            return self._opened("mode=rwc", make=True)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NOT_WRITABLE) or not self._file.is_file():
                raise
        try:
            return self._opened("mode=ro", make=False)
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NOT_WRITABLE):
                raise
        # Nobody has it open, and the files that SQLite would put beside it cannot be made.
        return self._opened("mode=ro&immutable=1", make=False)

    def _opened(self, way: str, *, make: bool) -> _Connection:
        db = sqlite3.connect(
            f"{self._file.absolute().as_uri()}?{way}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        try:
            if make:
                self._use_wal(db)
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                self._create(db)
        except BaseException:
            db.close()
            raise
        return db

    def _use_wal(self, db: sqlite3.Connection) -> None:
        """SQLite does not wait for its lock here, so when several processes make the lake at once we do."""
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
        """Make the tables, in one transaction: whoever calls closes the connection if that fails, and undoes it by that."""
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
                "use the Perago that made it, or another root"
            )
        db.execute("COMMIT")


class _Connection(sqlite3.Connection):
    """A connection that knows its settings: SQLite compiles a PRAGMA every time, and most would change nothing."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._settings: dict[str, str | int] = {}

    def set(self, name: str, value: str | int) -> None:
        """Have a setting of this connection at a value; only outside a transaction."""
        if self._settings.get(name) != value:
            self.execute(f"PRAGMA {name} = {value}")
            self._settings[name] = value


class TreeNodes:
    """The `Nodes` of local_trees over the database; decoded nodes are cached, as they never change."""

    def __init__(self, store: Store, db: sqlite3.Connection | None, cache: dict[str, Node]) -> None:
        self._store = store
        self._db = db
        self._cache = cache

    def get(self, node: str) -> Node:
        """The node of that id."""
        found = self._cache.get(node)
        if found is None:
            body = _body(self._db, "nodes", node) if self._db else self._store.body("nodes", node)
            if body is None:
                raise LakeError(f"embedded lake: tree node {node} is missing; `fsck` tells what is lost")
            found = decode(body)
            self._remember(node, found)
        return found

    def put(self, node: Node) -> str:
        """Keep a node; its id.  Only inside a transaction."""
        if self._db is None:
            raise LakeError("embedded lake: tree nodes are written inside a transaction")
        body = node.encode()
        name = node_id(body)
        self._db.execute("INSERT OR IGNORE INTO nodes (id, body) VALUES (?, ?)", (name, body))
        self._remember(name, node)
        return name

    def _remember(self, name: str, node: Node) -> None:
        # A node of a transaction that is rolled back may stay here: its id says all that is in it.
        if len(self._cache) >= CACHED_NODES:
            self._cache.clear()
        self._cache[name] = node


def _body(db: sqlite3.Connection, table: str, name: str) -> bytes | None:
    row = db.execute(f"SELECT body FROM {table} WHERE id = ?", (name,)).fetchone()
    return None if row is None else bytes(row[0])
