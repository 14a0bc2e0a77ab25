"""`perago map` over 300 repositories of real lakeFS, on executors that are processes of their own; one of them is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from perago.lake.base import Lake
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.table import read_table
from realservers.state import free_ports
from tests.conftest import LakefsServer
from tests.spark.conftest import on_cluster
from tests.spark.test_map import TASK, wait_for
from tests.support.processes.commands import Shell
from tests.support.servers.lakefs import lakefs_lake
from tests.support.worlds.spark_world import shown_by_spark

ROWS = 300
FAILING = range(20, ROWS + 1, 20)
"""Five in a hundred."""
VICTIM = 7
UI = "TEST_UI_PORT"


@pytest.fixture
def lake(lakefs_server: LakefsServer, tmp_path: Path) -> Iterator[Lake]:
    with closing(lakefs_lake(lakefs_server, tmp_path / "cache")) as made:
        yield made


@pytest.fixture
def repositories(lake: Lake, lakefs_server: LakefsServer) -> Iterator[list[str]]:
    """Many repositories, each with an empty branch `main`."""
    part = uuid4().hex[:8]
    names = [f"test-{part}-{number:03d}" for number in range(1, ROWS + 1)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lake.create_repository, names))
        yield names
        list(pool.map(lambda name: lakefs_server.call("DELETE", f"/repositories/{name}?force=true"), names))


@pytest.fixture
def shell(lakefs_server: LakefsServer, tmp_path: Path) -> Shell:
    """A shell whose Spark has two executors of one core each, a UI and an event log."""
    made, port = Shell(tmp_path), free_ports(1)[0]
    (tmp_path / "events").mkdir()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
    }
    made.environ |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        UI: str(port),
        "PERAGO_SPARK_MASTER": "local-cluster[2,1,1024]",
        "PERAGO_SPARK_CONF": on_cluster(conf),
    }
    return made


def test_300_repositories_with_failures_and_a_killed_executor_end_right(
    shell: Shell, lake: Lake, repositories: list[str], lakefs_server: LakefsServer, tmp_path: Path
) -> None:
    go, fixed = tmp_path / "go", tmp_path / "fixed"
    rows: list[dict[str, object]] = [{"repository": name, "title": name[-3:]} for name in repositories]
    for number in FAILING:
        rows[number - 1]["fails_without"] = str(fixed)
    rows[VICTIM - 1]["waits_for"] = str(go)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    before = _histories(lake, repositories)
    arguments = ["map", TASK, "rows.jsonl", "-o", "out.parquet", "--remote", "--yes"]

    with (tmp_path / "shown.txt").open("w") as told:
        driver = subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=tmp_path,
            env=shell.environ,
            stdout=told,
            stderr=told,
            text=True,
        )
        inside = tmp_path / "go.inside"
        wait_for(inside.exists, driver)
        _, _, executor = map(int, inside.read_text().split())
        assert "CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_text()
        seen = shown_by_spark(int(shell.environ[UI]))
        os.kill(executor, signal.SIGKILL)
        # The body may continue without its executor: once another execution has claimed the row, its result does not count.
        wait_for(lambda: _taken_again(lake, tmp_path), driver)
        go.touch()
        driver.wait()
    shown = (tmp_path / "shown.txt").read_text()

    first = {row["row"]: row for row in read_table(tmp_path / "out.parquet")}
    assert driver.returncode == 1, shown
    assert f"{ROWS - len(FAILING)} of {ROWS} rows are done, {len(FAILING)} failed" in shown
    assert sorted(first) == list(range(1, ROWS + 1))
    assert {number for number, row in first.items() if row["status"] != "COMPLETED"} == set(FAILING)
    assert first[VICTIM]["attempts"] >= 2
    half = _histories(lake, repositories)
    _check_one_commit_each(before, half, first)

    fixed.touch()
    # Resumed by a driver of another shape: what is left to do is in the record, not in the cluster.
    shell.environ |= {"PERAGO_SPARK_MASTER": "local[2]"}
    again = shell.run(*arguments, "--resume")

    assert again.code == 0, again.err
    last = {row["row"]: row for row in read_table(tmp_path / "out.parquet")}
    after = _histories(lake, repositories)
    _check_one_commit_each(before, after, last)
    assert {row["status"] for row in last.values()} == {"COMPLETED"}
    assert all(
        after[row["repository"]] == half[row["repository"]] for row in first.values() if row["published"]
    )
    assert _own_branches(lake, repositories) == []
    seen += "".join(file.read_text() for file in (tmp_path / "events").rglob("*") if file.is_file())
    # The page and the log are there, and show what was configured.
    assert seen.count("spark.eventLog.dir") >= 2
    assert lakefs_server.secret_access_key not in seen
    assert lakefs_server.secret_access_key not in shown + again.out + again.err


def _taken_again(lake: Lake, folder: Path) -> bool:
    run = json.loads((folder / "out.parquet.map").read_text())["run"]
    last = MapRecord(lake, run).last(VICTIM)
    return last is not None and last.slot > 1


def _histories(lake: Lake, names: list[str]) -> dict[str, list[str]]:
    with ThreadPoolExecutor(8) as pool:
        logs = pool.map(lambda name: [commit.id for commit in lake.log(name, "main", 9)], names)
        return dict(zip(names, logs, strict=True))


def _own_branches(lake: Lake, names: list[str]) -> list[str]:
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda name: lake.branches(name, "perago-"), names)
        return [branch.name for branches in found for branch in branches]


def _check_one_commit_each(
    before: dict[str, list[str]], after: dict[str, list[str]], rows: dict[int, dict[str, object]]
) -> None:
    for row in rows.values():
        name = str(row["repository"])
        made = [row["published"]] if row["status"] == "COMPLETED" else []
        assert after[name] == [*made, *before[name]], row
