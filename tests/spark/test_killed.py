"""kill -9 in the middle of a Spark write, on a whole worker: after the retry there is one complete result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from perago.backend import open_lakefs, open_local_lake
from perago.lake.base import Lake
from perago.settings import load_settings
from tests.conftest import ConductorServer, LakefsServer
from tests.support.tasks import killed_task
from tests.support.tasks.killed_task import ROWS
from tests.support.worlds.spark_world import published_table

TASKS = Path(killed_task.__file__)
FLOW = {
    "name": "squares",
    "version": 1,
    "schemaVersion": 2,
    "ownerEmail": "tests@example.com",
    "tasks": [
        {
            "name": "write_squares",
            "taskReferenceName": "write",
            "type": "SIMPLE",
            "inputParameters": {
                "workspace": "${workflow.input.workspace}",
                "params": {"flag": "${workflow.input.flag}"},
            },
        }
    ],
    "outputParameters": {"ref": "${write.output.workspace.ref}"},
}


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a run: arguments and environment of `perago run`, and the lake to inspect."""

    repository: str
    arguments: tuple[str, ...]
    environ: dict[str, str]
    lake: Lake


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Servers]:
    root = tmp_path / "root"
    with closing(open_local_lake(load_settings({}, root=root))) as lake:
        lake.create_repository("squares")
        yield Servers("squares", ("--root", str(root)), {**os.environ, "SQUARES_PLACEMENT": "local"}, lake)


@pytest.fixture
def real(
    lakefs_server: LakefsServer, conductor_server: ConductorServer, lakefs_repository: str, tmp_path: Path
) -> Iterator[Servers]:
    environ = {**os.environ, "SQUARES_PLACEMENT": "direct", "PERAGO_ROOT": str(tmp_path / "root")}
    with closing(open_lakefs(load_settings(environ))) as lake:
        yield Servers(lakefs_repository, ("--remote", "--yes"), environ, lake)


@pytest.mark.slow
def test_a_write_that_is_killed_in_the_workdir_is_published_once_and_whole(
    embedded: Servers, tmp_path: Path
) -> None:
    kill_and_retry(embedded, tmp_path)


@pytest.mark.slow
def test_a_write_that_is_killed_on_the_staging_branch_is_published_once_and_whole(
    real: Servers, tmp_path: Path
) -> None:
    kill_and_retry(real, tmp_path)


def kill_and_retry(servers: Servers, folder: Path) -> None:
    a = servers.lake.head(servers.repository, "main").id
    (folder / "flow.json").write_text(json.dumps(FLOW))
    (folder / "flag").touch()
    command = [
        sys.executable,
        "-m",
        "perago",
        "run",
        str(folder / "flow.json"),
        "--tasks",
        str(TASKS),
        "--json",
    ]
    command += ["--workspace", servers.repository, "--input", json.dumps({"flag": str(folder / "flag")})]

    done = subprocess.run(
        [*command, *servers.arguments],
        cwd=TASKS.parents[2],
        env=servers.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    attempts = [(task["status"], task["reason"] or "") for task in json.loads(done.stdout)["tasks"]]
    assert [status for status, _ in attempts] == ["FAILED", "COMPLETED"]
    assert attempts[0][1] == "the executor died with signal SIGKILL at step 'body'"
    head = servers.lake.head(servers.repository, "main")
    assert head.first_parent == a
    assert squares(servers, folder / "read") == [(n, n * n) for n in range(ROWS)]
    assert [branch.name for branch in servers.lake.branches(servers.repository, "perago-")] == []


def squares(servers: Servers, folder: Path) -> list[tuple[int, int]]:
    """The published table, row by row."""
    for entry in servers.lake.list(servers.repository, "main", ""):
        assert entry.path.startswith("data/squares/part-")
    rows = published_table(servers.lake, servers.repository, "data/squares", folder)
    return sorted((row["id"], row["square"]) for row in rows)
