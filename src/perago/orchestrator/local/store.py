"""Stores runs, tasks and definitions in one SQLite file, for several processes at once.

Every change is one immediate transaction: an event and the decider's reaction are written together or not at all.
In WAL mode with synchronous=NORMAL, a killed process loses nothing that it has committed.

A read-only store changes nothing.  A file in an earlier format is upgraded in memory only, and a
write-protected file can be read too.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perago.errors import OrchestratorRefused, OrchestratorUnavailable, RuntimeConfigError, storage_remedy

_SCHEMA_VERSION = 2
_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS taskdef (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS workflow_def (
    name TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (name, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS run (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, definition TEXT NOT NULL, taskdefs TEXT NOT NULL,
    input TEXT NOT NULL, output TEXT NOT NULL, status TEXT NOT NULL, reason TEXT,
    created REAL NOT NULL, ended REAL, deadline REAL, retried_at REAL, branches TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS task (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL, reference TEXT NOT NULL, name TEXT NOT NULL,
    type TEXT NOT NULL, status TEXT NOT NULL, seq INTEGER NOT NULL, retry_count INTEGER NOT NULL,
    iteration INTEGER NOT NULL, input TEXT NOT NULL, output TEXT NOT NULL, reason TEXT,
    executed INTEGER NOT NULL, retried INTEGER NOT NULL, scheduled REAL NOT NULL,
    first_scheduled REAL NOT NULL, available REAL NOT NULL, started REAL, updated REAL NOT NULL,
    ended REAL, worker_id TEXT, poll_count INTEGER NOT NULL, deadline REAL
);
CREATE TABLE IF NOT EXISTS task_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL, at REAL NOT NULL, line TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS task_by_run ON task (run_id, seq);
CREATE INDEX IF NOT EXISTS task_waiting ON task (name, available, number) WHERE status = 'SCHEDULED';
CREATE INDEX IF NOT EXISTS task_working ON task (name) WHERE status = 'IN_PROGRESS';
CREATE INDEX IF NOT EXISTS task_due ON task (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX IF NOT EXISTS run_due ON run (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX IF NOT EXISTS task_log_by_task ON task_log (task_id, number);
"""
# Statements that upgrade a file, by its current format.
_UPGRADES = {
    1: (
        "ALTER TABLE run ADD COLUMN retried_at REAL",
        "ALTER TABLE run ADD COLUMN branches TEXT NOT NULL DEFAULT '{}'",
    )
}


class Store:
    """The database file, with one connection per process and a lock around it."""

    def __init__(
        self, path: Path, *, sleep: Callable[[float], None] = time.sleep, read_only: bool = False
    ) -> None:
        self._path = path
        self._lock = threading.RLock()
        if read_only:
            with self._translated():
                self._connection = self._open_read_only()
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeConfigError(f"cannot create the folder {path.parent}: {error}") from error
        with self._translated():
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            try:
                self._prepare(sleep)
            except BaseException:
                self._connection.close()
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for reading.  Each statement sees a consistent committed state."""
        with self._lock, self._translated():
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in an immediate transaction.  Commits after the block, or rolls back on an exception."""
        with self._lock, self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def _prepare(self, sleep: Callable[[float], None]) -> None:
        # Several processes may open a new file at the same time, and SQLite's busy handler does not apply to the switch
        # to WAL mode.
        for attempt in range(200):
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:
                if attempt == 199:
                    raise
                sleep(0.01)
        self._connection.execute("PRAGMA synchronous=NORMAL")
        with self.writing() as connection:
            self._upgrade(connection)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        found = self._format(connection)
        if found == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
        for statement in _UPGRADES.get(found, ()):
            connection.execute(statement)
        if found != _SCHEMA_VERSION:
            connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")

    def _format(self, connection: sqlite3.Connection) -> int:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, _SCHEMA_VERSION, *_UPGRADES):
            raise RuntimeConfigError(
                f"{self._path} was written by another version of Perago (format {found}, "
                f"this one reads {_SCHEMA_VERSION}): use another root, or the version that wrote it"
            )
        return found

    def _open_read_only(self) -> sqlite3.Connection:
        connection = _connect_read_only(self._path)
        try:
            if self._format(connection) == _SCHEMA_VERSION:
                connection.row_factory = sqlite3.Row
                return connection
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            copy.row_factory = sqlite3.Row
            connection.backup(copy)
        except BaseException:
            connection.close()
            raise
        connection.close()
        self._upgrade(copy)
        return copy

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OrchestratorUnavailable(
                f"embedded orchestrator at {self._path}: {error}{storage_remedy(error)}"
            ) from error


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a file for reading.  If permissions allow no other mode, treat the file as immutable."""
    for mode in ("mode=rw", "mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?{mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            # Try the next mode only if permission is missing: a busy file is being written to, so it is not immutable.
            if "immutable" in mode or not error.sqlite_errorname.startswith(
                ("SQLITE_CANTOPEN", "SQLITE_READONLY")
            ):
                raise
        else:
            return connection
    raise AssertionError("the last mode returns or raises")


def dump_json(value: Mapping[str, Any], what: str) -> str:
    """Return compact JSON text.  Raises `OrchestratorRefused` if the value is not JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OrchestratorRefused(f"{what} is not JSON: {error}") from error
