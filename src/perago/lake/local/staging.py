"""What is uncommitted on the embedded lake's branches, as rows over the head's tree.

Every function takes the connection of a running transaction.  A path without a value is one that is removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge

from perago.lake.base import Entry
from perago.lake.local.refs import Branch
from perago.lake.local.trees import Value


def put(db: sqlite3.Connection, branch: Branch, objects: Mapping[str, Value | None]) -> None:
    """Put objects onto a branch, over what was uncommitted there."""
    rows = [(branch.key, path, *(value or (0, None))) for path, value in objects.items()]
    db.executemany("INSERT OR REPLACE INTO staged (branch, path, size, checksum) VALUES (?, ?, ?, ?)", rows)


def forget(db: sqlite3.Connection, branch: Branch, paths: Sequence[str]) -> None:
    """Take back what is uncommitted at these paths."""
    rows = [(branch.key, path) for path in paths]
    db.executemany("DELETE FROM staged WHERE branch = ? AND path = ?", rows)


def clear(db: sqlite3.Connection, branch: Branch) -> None:
    """Take back all that is uncommitted on a branch."""
    db.execute("DELETE FROM staged WHERE branch = ?", (branch.key,))


def is_dirty(db: sqlite3.Connection, branch: Branch) -> bool:
    """Whether a branch has uncommitted changes."""
    return db.execute("SELECT 1 FROM staged WHERE branch = ? LIMIT 1", (branch.key,)).fetchone() is not None


def at(db: sqlite3.Connection, branch: Branch, path: str) -> dict[str, Value | None]:
    """What is uncommitted at one path: nothing, or one item."""
    sql = "SELECT path, size, checksum FROM staged WHERE branch = ? AND path = ?"
    return {row[0]: _value(row) for row in db.execute(sql, (branch.key, path))}


def below(db: sqlite3.Connection, branch: Branch, prefix: str) -> dict[str, Value | None]:
    """What is uncommitted below a prefix, in order of path."""
    sql = "SELECT path, size, checksum FROM staged WHERE branch = ? AND path >= ? ORDER BY path"
    found: dict[str, Value | None] = {}
    for row in db.execute(sql, (branch.key, prefix)):
        if not row[0].startswith(prefix):
            break
        found[row[0]] = _value(row)
    return found


def overlaid(
    committed: Iterator[tuple[str, Value]], uncommitted: Mapping[str, Value | None]
) -> Iterator[Entry]:
    """The committed objects with the uncommitted ones over them; both come in order, and so does the result."""
    untouched = (item for item in committed if item[0] not in uncommitted)
    for path, value in merge(untouched, uncommitted.items(), key=lambda item: item[0]):
        if value is not None:
            yield Entry(path, *value)


def _value(row: tuple[str, int, str | None]) -> Value | None:
    _, size, checksum = row
    return None if checksum is None else (size, checksum)
