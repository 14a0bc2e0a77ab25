"""kill -9 in the middle of a Spark write, on a whole worker: after the retry there is one complete result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perago.backend import open_lakefs, open_local_lake
from perago.lake.base import Lake
from perago.settings import load_settings
from realservers.artifacts import spark_cloud_jar
from tests.conftest import ConductorServer, LakefsServer
from tests.spark.conftest import FEW_ROWS, as_setting
from tests.support.tasks import killed_task, replaced_task
from tests.support.tasks.killed_task import ROWS
from tests.support.tasks.replaced_task import OLD_DAYS, PHASES
from tests.support.tasks.replaced_task import ROWS as REPLACED
from tests.support.worlds.spark_world import published_table


def workflow(*steps: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """A workflow of these tasks, one after the other, each with these params."""
    workspace, tasks = "${workflow.input.workspace}", []
    for name, params in steps:
        given = {"workspace": workspace, "params": params}
        tasks.append({"name": name, "taskReferenceName": name, "type": "SIMPLE", "inputParameters": given})
        workspace = f"${{{name}.output.workspace}}"
    return {
        "name": "killed",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "tasks": tasks,
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
        environ = {"SQUARES_PLACEMENT": "local", "PERAGO_SPARK_CONF": as_setting(FEW_ROWS)}
        yield Servers("squares", ("--root", str(root)), {**os.environ, **environ}, lake)


@pytest.fixture
def real(
    lakefs_server: LakefsServer, conductor_server: ConductorServer, lakefs_repository: str, tmp_path: Path
) -> Iterator[Servers]:
    environ = {**os.environ, "SQUARES_PLACEMENT": "direct", "PERAGO_ROOT": str(tmp_path / "root")}
    environ["PERAGO_SPARK_CONF"] = as_setting(FEW_ROWS)
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


@pytest.mark.slow
def test_partitions_are_replaced_once_and_whole_after_a_kill_in_each_phase_in_the_workdir(
    embedded: Servers, tmp_path: Path
) -> None:
    kill_in_each_phase(embedded, tmp_path)


@pytest.mark.slow
def test_partitions_are_replaced_once_and_whole_after_a_kill_in_each_phase_on_the_staging_branch(
    real: Servers, tmp_path: Path
) -> None:
    # With this jar, Spark chooses the magic committer for s3a, and one that appends for other file systems.
    conf = {**FEW_ROWS, "spark.driver.extraClassPath": str(spark_cloud_jar())}
    magic = {**real.environ, "PERAGO_SPARK_CONF": as_setting(conf)}
    kill_in_each_phase(replace(real, environ=magic), tmp_path)


KILLED = "the executor died with signal SIGKILL at step 'body'"


def kill_and_retry(servers: Servers, folder: Path) -> None:
    a = servers.lake.head(servers.repository, "main").id
    flag = folder / "flag"
    flag.touch()

    attempts = run(servers, folder, killed_task, workflow(("write_squares", {"flag": str(flag)})))

    assert attempts == [("FAILED", KILLED), ("COMPLETED", "")]
    assert servers.lake.head(servers.repository, "main").first_parent == a
    for path in objects(servers):
        assert path.startswith("data/squares/part-")
    rows = published_table(servers.lake, servers.repository, "data/squares", folder / "read")
    assert sorted((row["id"], row["square"]) for row in rows) == [(n, n * n) for n in range(ROWS)]


def kill_in_each_phase(servers: Servers, folder: Path) -> None:
    flags = folder / "flags"
    flags.mkdir()
    for phase in PHASES:
        (flags / phase).touch()
    flow = workflow(("make_days", {}), ("replace_days", {"flags": str(flags)}))

    made, *killed, done = run(servers, folder, replaced_task, flow)

    assert (made, killed, done) == (("COMPLETED", ""), [("FAILED", KILLED)] * len(PHASES), ("COMPLETED", ""))
    assert list(flags.iterdir()) == []
    made_at = servers.lake.head(servers.repository, "main").first_parent
    assert made_at is not None
    before, after = objects(servers, made_at), objects(servers)
    assert sorted(before) == [f"data/days/day={day}/part-00000-old.parquet" for day in OLD_DAYS]
    assert before.items() & after.items() == {next(iter(sorted(before.items())))}
    for path in after:
        assert re.fullmatch(r"data/days/day=[123]/part-\d{5}[^/]*", path)
    rows = published_table(servers.lake, servers.repository, "data/days", folder / "read")
    assert sorted((row["id"], row["day"]) for row in rows) == [
        (-1, 1),
        *((n, n % 2 + 2) for n in range(REPLACED)),
    ]


def run(servers: Servers, folder: Path, tasks: ModuleType, flow: dict[str, Any]) -> list[tuple[str, str]]:
    """Run a workflow to its end. Returns the attempts with their reasons."""
    (folder / "flow.json").write_text(json.dumps(flow))
    file = Path(str(tasks.__file__))
    command = [
        sys.executable,
        "-m",
        "perago",
        "run",
        str(folder / "flow.json"),
        "--tasks",
        str(file),
        "--json",
    ]

    done = subprocess.run(
        [*command, "--workspace", servers.repository, *servers.arguments],
        cwd=file.parents[2],
        env=servers.environ,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert [branch.name for branch in servers.lake.branches(servers.repository, "perago-")] == []
    return [(task["status"], task["reason"] or "") for task in json.loads(done.stdout)["tasks"]]


def objects(servers: Servers, ref: str = "main") -> dict[str, str]:
    """The objects of a ref: path and checksum."""
    return {entry.path: entry.checksum for entry in servers.lake.list(servers.repository, ref, "")}
