"""The index of the content cache: one SQLite file that any number of threads and processes can change.

A process keeps one connection open, since opening one costs more than most of the work done on it.  The connection is
reopened in a forked child, and when another process has replaced a damaged index file.

The file stores the version of its tables.  A file with another version, or one that Perago did not create, is
rebuilt in place from the files on disk, so an upgrade preserves the cache.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from perago.lake.lakefs.cache.files import restrict_to_owner

_BUSY_SECONDS = 10
_VERSION = 0x5065_0002
"""Version of the tables below. Increase it whenever the tables, or the names in them, change.

The number is large, so that no unrelated file has it by chance."""
_SCHEMA = (
    "CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX kept_by_use ON kept (used, size)",
    "CREATE TABLE sums (name TEXT PRIMARY KEY, crc INTEGER, mtime INTEGER NOT NULL) WITHOUT ROWID",
)
Row = tuple[str, int, int]
"""The name, size and time of last use of a cached file."""
_FOREIGN = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
T = TypeVar("T")

_lock = threading.Lock()
_inherited: list[sqlite3.Connection] = []
"""Connections inherited from a parent process. They must not be garbage-collected: closing them here would release the
parent's locks."""


def _reset_lock() -> None:
    """Replace the lock after a fork: the thread that holds it may not exist in the child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_lock)


class Index:
    """The index file. Only one thread per process uses it at a time. `on_disk` yields the rows for rebuilding it."""

    def __init__(self, path: Path, on_disk: Callable[[], Iterable[Row]]) -> None:
        self.path = path
        self._on_disk = on_disk
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int, int] | None = None

    @property
    def names(self) -> tuple[str, str]:
        """The file names that the index uses in its folder."""
        return self.path.name, f"{self.path.name}-journal"

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction."""
        with _lock:
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                done = work(db)
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
            return done

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which must be a single read-only statement."""
        with _lock:
            return work(self._open())

    def close(self) -> None:
        """Close the file."""
        with _lock:
            self._close()

    def remove(self) -> None:
        """Delete the file. The next use creates a new one."""
        with _lock:
            self._close()
            for name in self.names:
                with contextlib.suppress(OSError):
                    os.unlink(self.path.with_name(name))

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and self._file == self._identity():
            return self._db
        self._close()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite gives its journal the same mode as the file.
        self.path.touch(mode=0o600)
        restrict_to_owner(self.path)
        db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA synchronous = OFF")
            # As safe as the default if the process is killed, but without creating and deleting a file each time.
            db.execute("PRAGMA journal_mode = PERSIST")
            if _version(db) != _VERSION:
                self._rebuild(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, self._identity()
        return db

    def _rebuild(self, db: sqlite3.Connection) -> None:
        """Replace all tables with newly created ones, and add a row for every file on disk, in one transaction."""
        db.execute("BEGIN EXCLUSIVE")
        # Another process may have rebuilt the index while this one waited.
        if _version(db) == _VERSION:
            db.execute("ROLLBACK")
            return
        try:
            for kind, name in db.execute(_FOREIGN).fetchall():
                quoted = name.replace('"', '""')
                db.execute(f'DROP {kind} IF EXISTS "{quoted}"')
            for statement in _SCHEMA:
                db.execute(statement)
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", self._on_disk())
            db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            # The file is locked exclusively, so waiting would not help.
            raise sqlite3.DatabaseError(str(error)) from error

    def _identity(self) -> tuple[int, int, int] | None:
        """Return the file's device and inode and this process's id, or None if there is no file.

        A connection that belongs to another process must be neither used nor closed.
        """
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, os.getpid()

    def _close(self) -> None:
        db, self._db = self._db, None
        if db is None:
            return
        if self._file is not None and self._file[2] == os.getpid():
            db.close()
        else:
            _inherited.append(db)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
