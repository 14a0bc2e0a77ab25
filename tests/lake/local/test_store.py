"""The embedded lake's connections: each transaction has the wait and the durability it asks for."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.errors import LakeError
from perago.lake.local.store import BUSY_SECONDS, Store

NORMAL, FULL = 1, 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "lake.db")
    yield store
    store.close()


def setting(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def test_a_durable_transaction_is_durable_after_one_that_was_not(store: Store) -> None:
    found = []
    for durable in (True, False, True, True, False, False, True):
        with store.write(durable=durable) as db:
            found.append(setting(db, "synchronous"))

    assert found == [FULL, NORMAL, FULL, FULL, NORMAL, NORMAL, FULL]


def test_a_short_wait_is_for_the_one_transaction_that_asked_for_it(store: Store) -> None:
    with store.write(durable=True, timeout=1.5) as db:
        assert setting(db, "busy_timeout") == 1500
    with store.write(durable=True) as db:
        assert setting(db, "busy_timeout") == BUSY_SECONDS * 1000
    with store.write(durable=True, timeout=0) as db:
        assert setting(db, "busy_timeout") == 1
    with store.read() as db:
        assert setting(db, "busy_timeout") == BUSY_SECONDS * 1000


def test_an_exception_undoes_what_a_transaction_wrote(store: Store) -> None:
    def write_and_fail() -> None:
        with store.write(durable=True) as db:
            db.execute("INSERT INTO repositories (name) VALUES ('songs')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()

    with store.read() as db:
        assert db.execute("SELECT count(*) FROM repositories").fetchone() == (0,)


def test_a_lake_of_another_format_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "lake.db"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()
    store = Store(file)

    with pytest.raises(LakeError, match="has format 7"), store.read():
        pass

    # The lock of the inspection is released.
    with sqlite3.connect(file, timeout=0) as db:
        db.execute("BEGIN IMMEDIATE")
        assert db.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    db.close()
