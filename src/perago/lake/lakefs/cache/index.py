"""The books of the content cache: one SQLite file that any number of threads and processes change.

A process keeps one connection, since opening one costs more than most of what is done on it.  It is opened anew in a
forked child, and where another process has put a new file in place of a damaged one.

The file carries the version of its tables.  One of another version, or of somebody else's making, is made anew in place,
from the files that are there: an upgrade keeps the cache.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from perago.lake.lakefs.cache.files import close_to_others

_BUSY_SECONDS = 10
_VERSION = 0x5065_0002
"""Of the tables below: raise it with every change of them, or of the names in them.

Large, so that nobody else's file has it by chance."""
_SCHEMA = (
    "CREATE TABLE kept (name TEXT PRIMARY KEY, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX kept_by_use ON kept (used, size)",
    "CREATE TABLE sums (name TEXT PRIMARY KEY, crc INTEGER, mtime INTEGER NOT NULL) WITHOUT ROWID",
)
Row = tuple[str, int, int]
"""Name, size and last use of something that is kept."""
_THEIRS = "SELECT type, name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite!_%' ESCAPE '!'"
T = TypeVar("T")

_lock = threading.Lock()
_others: list[sqlite3.Connection] = []
"""Connections of a parent process, kept from being collected: closing them here would let go of its locks."""


def _forked() -> None:
    """The lock may be held by a thread that is not here."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


class Index:
    """One index file; the threads of a process take turns on it.  `on_disk` tells what it is made anew from."""

    def __init__(self, path: Path, on_disk: Callable[[], Iterable[Row]]) -> None:
        self.path = path
        self._on_disk = on_disk
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int, int] | None = None

    @property
    def names(self) -> tuple[str, str]:
        """The files it may have in its folder."""
        return self.path.name, f"{self.path.name}-journal"

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work in one transaction."""
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

    def look(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do work that only reads, in one statement."""
        with _lock:
            return work(self._open())

    def close(self) -> None:
        """Give the file back."""
        with _lock:
            self._close()

    def remove(self) -> None:
        """Take the file away; the next use makes a new one."""
        with _lock:
            self._close()
            for name in self.names:
                with contextlib.suppress(OSError):
                    os.unlink(self.path.with_name(name))

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and self._file == self._found():
            return self._db
        self._close()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # SQLite gives its journal the mode of the file.
        self.path.touch(mode=0o600)
        close_to_others(self.path)
        db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA synchronous = OFF")
            # As safe against a killed process as the default, without making and removing a file each time.
            db.execute("PRAGMA journal_mode = PERSIST")
            if _version(db) != _VERSION:
                self._make_anew(db)
        except BaseException:
            db.close()
            raise
        self._db, self._file = db, self._found()
        return db

    def _make_anew(self, db: sqlite3.Connection) -> None:
        """Replace whatever tables there are by ours, with a row for everything on disk, in one transaction."""
        db.execute("BEGIN EXCLUSIVE")
        # Another process may have been first, while this one waited for its turn.
        if _version(db) == _VERSION:
            db.execute("ROLLBACK")
            return
        try:
            for kind, name in db.execute(_THEIRS).fetchall():
                quoted = name.replace('"', '""')
                db.execute(f'DROP {kind} IF EXISTS "{quoted}"')
            for statement in _SCHEMA:
                db.execute(statement)
            db.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", self._on_disk())
            db.execute(f"PRAGMA user_version = {_VERSION}")
            db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            # Nobody else is at the file, so that waiting would not help.
            raise sqlite3.DatabaseError(str(error)) from error

    def _found(self) -> tuple[int, int, int] | None:
        """Which file is there, and who asks: a connection of another process must not be used, nor closed."""
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
            _others.append(db)


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
