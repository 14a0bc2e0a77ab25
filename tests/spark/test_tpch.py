"""`make tpch`: the answers of the pipeline equal DuckDB's, on both kinds of servers and with both placements."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import FEW_ROWS, as_setting
from tests.support.processes.processes import ancestors, descendants, name_of
from tests.support.worlds.clock import eventually

PROJECT = Path(__file__).parents[2]
FEW = {"PERAGO_SPARK_CONF": as_setting(FEW_ROWS)}

pytestmark = pytest.mark.slow


def start(root: Path, more: Mapping[str, str]) -> subprocess.Popen[str]:
    environ = {**os.environ, **FEW, "SCALE": "0.01", "PERAGO_ROOT": str(root), **more}
    command = [sys.executable, str(PROJECT / "examples" / "tpch" / "tpch.py")]
    return subprocess.Popen(
        command, env=environ, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def begun(root: Path, step: str) -> bool:
    return any(f"{step}: " in log.read_text() for log in root.glob("tpch/runs/*/run.log"))


def kill_executors(running: int) -> int:
    """Kill every executor that has a Spark session, that is a JVM; returns how many."""
    executors, depth = set(), len(ancestors(running))
    for pid in descendants(running):
        above = ancestors(pid)
        # The script runs a worker, which has a fork server, which forks executors, which start JVMs.  The JVM of an
        # executor that is dead already belongs to the fork server, which must live.
        if name_of(pid) == "java" and len(above) == depth + 4:
            executors.add(above[0])
    for executor in executors:
        with suppress(ProcessLookupError):
            os.kill(executor, signal.SIGKILL)
    return len(executors)


def kill_when_begun(running: subprocess.Popen[str], root: Path, *steps: str) -> None:
    """Kill the executors in each of these steps."""
    for step in steps:
        eventually(partial(begun, root, step), f"{step} has begun", 900)
        eventually(lambda: kill_executors(running.pid), "an executor is killed")


def test_all_answers_are_right_though_executors_are_killed_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "mine").touch()
    with start(tmp_path / "root", {"REAL": "0"}) as running:
        kill_when_begun(running, tmp_path / "root", "q05", "q14")
        said = running.communicate()[0]

    assert running.returncode == 0, said
    assert "All 22 answers equal DuckDB's." in said
    assert (tmp_path / "root" / "mine").exists(), "other work below PERAGO_ROOT stays"


@pytest.mark.parametrize("placement", ["local", "direct"])
def test_answers_are_right_on_real_servers_though_an_executor_is_killed(
    placement: str, lakefs_server: Any, conductor_server: Any, tmp_path: Path
) -> None:
    more = {"REAL": "1", "TPCH_PLACEMENT": placement, "TPCH_WORKFLOW": "tpch_few"}
    with start(tmp_path / "root", more) as running:
        kill_when_begun(running, tmp_path / "root", "q06")
        said = running.communicate()[0]

    assert running.returncode == 0, said
    assert "All 4 answers equal DuckDB's." in said
