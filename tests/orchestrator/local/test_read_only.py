"""Reading an embedded orchestrator or lake changes nothing, waits for no writer and needs no write permission."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorUnavailable
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from tests.support.faults.disks import read_only, writable_again
from tests.support.servers.local_orchestrator import TASKDEF, brief, opened, start
from tests.support.worlds.clock import Clock


@pytest.fixture
def workflow_id(path: Path, clock: Clock) -> str:
    with closing(opened(path, clock)) as orchestrator:
        orchestrator.register_taskdefs([TASKDEF])
        return start(orchestrator)


def look(path: Path, workflow_id: str) -> list[tuple[str, str, int]]:
    with closing(LocalOrchestrator(path, clock=lambda: 0.0, read_only=True)) as orchestrator:
        return brief(orchestrator, workflow_id)


def test_a_file_of_the_previous_format_is_read_and_stays_as_it_is(path: Path, workflow_id: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for column in ("retried_at", "branches"):
            connection.execute(f"ALTER TABLE run DROP COLUMN {column}")
        connection.execute("PRAGMA user_version=1")
        connection.commit()
    before = path.read_bytes()

    assert look(path, workflow_id) == [("a", "SCHEDULED", 0)]
    assert path.read_bytes() == before


def test_a_file_that_is_only_being_made_holds_no_workflow(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    path.touch()

    with pytest.raises(OrchestratorNotFound):
        look(path, "any")
    assert path.read_bytes() == b""


def test_reading_waits_for_no_writer_and_leaves_no_file(path: Path, workflow_id: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")

        assert look(path, workflow_id) == [("a", "SCHEDULED", 0)]
        writer.execute("ROLLBACK")
    look(path, workflow_id)
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(path.name)] == [path.name]


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)

    with pytest.raises(OrchestratorUnavailable, match="not a database; the file is damaged: bring it back"):
        look(path, "any")


LOOK = """
import sys
from pathlib import Path
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
folder = Path(sys.argv[1])
try:
    (folder / "written").touch()
except OSError:
    print("no right to write")
print(LocalOrchestrator(folder / "orchestrator.db", read_only=True).workflow(sys.argv[2]).status)
print(LocalLake(folder / "lake").head("songs", "main").message)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv takes root's right to write anywhere")
@pytest.mark.slow
def test_a_read_only_root_can_be_inspected(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with closing(opened(root / "orchestrator.db", clock)) as orchestrator:
        orchestrator.register_taskdefs([TASKDEF])
        started = start(orchestrator)
    with closing(LocalLake(root / "lake")) as lake:
        lake.create_repository("songs", message="came")

    before = read_only(root)
    try:
        looked = subprocess.run(
            [*before, sys.executable, "-c", LOOK, str(root), started],
            check=False,
            capture_output=True,
            text=True,
        )
    finally:
        writable_again(root)

    assert looked.stdout.split("\n") == ["no right to write", "RUNNING", "came", ""], looked.stderr
