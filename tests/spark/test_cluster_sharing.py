"""Drivers that share a standalone cluster: four at once with default settings, and idle ones that give executors back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from perago.spark.idle import cluster_defaults, must_stop
from realservers.spark_cluster import folder
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.spark.conftest import on_cluster
from tests.support.processes.commands import WAIT_SECONDS, Shell
from tests.support.tasks import meeting
from tests.support.worlds.clock import eventually

STANDALONE = "spark://host:7077"
IDLE = """
import os, sys
from dataclasses import replace
from pathlib import Path
from perago.settings import load_settings
from perago.spark.session import Sessions

def work(sessions):
    with sessions.in_use() as spark:
        assert spark.range(4, numPartitions=4).count() == 4
    print("worked", flush=True)
    sys.stdin.readline()

settings = load_settings(os.environ, root=Path(sys.argv[1]))
first = Sessions(settings, app="dynamic")
work(first)
first.get().stop()
fixed = settings.spark_conf + ";spark.dynamicAllocation.enabled=false"
second = Sessions(replace(settings, spark_conf=fixed), app="fixed")
work(second)
work(second)
"""


def test_four_attempts_run_side_by_side_with_the_sizes_that_drivers_take_by_default(
    master: str, lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path
) -> None:
    names = [f"meet_{number}" for number in range(meeting.ATTEMPTS)]
    steps = [
        {
            "name": "meet",
            "taskReferenceName": name,
            "type": "SIMPLE",
            "inputParameters": {
                "workspace": "${workflow.input.workspace}",
                "params": {"folder": "${workflow.input.folder}", "name": name},
            },
        }
        for name in names
    ]
    flow = {
        "name": "meeting",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "tasks": [
            {
                "name": "fork",
                "taskReferenceName": "fork",
                "type": "FORK_JOIN",
                "forkTasks": [[step] for step in steps],
            },
            {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": names},
        ],
    }
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    (tmp_path / "there").mkdir()
    shell = Shell(tmp_path)
    shell.environ |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "PERAGO_SPARK_MASTER": master,
        # With dynamic allocation, drivers that start at once take turns at the cores, limit or not.  One executor
        # per driver is enough to show that, and is half the JVMs.
        "PERAGO_SPARK_CONF": on_cluster({**FIXED, "spark.executor.cores": "2"}),
        "PYSPARK_PYTHON": sys.executable,
    }
    with fresh_repository(lakefs_server) as repository:
        given = json.dumps({"folder": str(tmp_path / "there")})
        arguments = ["--tasks", meeting.__file__, "--workspace", repository, "--input", given, "-j", "4"]

        ended = shell.run("run", "flow.json", *arguments, "--remote", "--yes", "--json")

    assert ended.code == 0, f"{ended.err}\n{ended.out}"
    outputs = [task["output"]["result"] for task in json.loads(ended.out)["tasks"] if task["task"] == "meet"]
    assert outputs == [{"parts": meeting.PARTS}] * meeting.ATTEMPTS


def test_an_idle_session_gives_its_executors_back(master: str, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PERAGO_SPARK_MASTER": master,
        "PERAGO_SPARK_CONF": on_cluster({}),
        "PERAGO_SPARK_IDLE": "1s",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-c", IDLE, str(tmp_path / "root")]
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "worked\n"
            app = apps(master)["dynamic"]
            assert app["name"] == "dynamic"
            eventually(
                lambda: apps(master)["dynamic"]["cores"] == 0, "dynamic allocation gives executors back"
            )
            go_on(process)
            eventually(lambda: "fixed" not in apps(master), "the session without dynamic allocation stops")
            # The next attempt gets another session.
            go_on(process)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> None:
    """Let the process do the next piece of work, and wait until it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "worked\n"


def apps(master: str) -> dict[str, Any]:
    """Return what the master says about the applications that are running, by name."""
    os.environ["PERAGO_DEV_SET"], before = "tests", os.environ.get("PERAGO_DEV_SET")
    try:
        cluster = json.loads((folder() / "cluster.json").read_text())
    finally:
        del os.environ["PERAGO_DEV_SET"]
        if before is not None:
            os.environ["PERAGO_DEV_SET"] = before
    assert master.endswith(f":{cluster['port']}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{cluster['web_port']}/json/", timeout=30) as answer:
        return {app["name"]: app for app in json.load(answer)["activeapps"]}


DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
FIXED = {"spark.dynamicAllocation.enabled": "false"}


@pytest.mark.parametrize(
    ("master", "known", "chosen"),
    [
        ("local[*]", {}, {}),
        ("local-cluster[2,1,1024]", {}, {}),
        (STANDALONE, {}, {"spark.cores.max": "2", "spark.executor.cores": "1", **DYNAMIC}),
        (STANDALONE, FIXED, {"spark.cores.max": "2", "spark.executor.cores": "1"}),
        # Spark starts no executor that is larger than the driver's limit: its jobs would wait for ever.
        (STANDALONE, {"spark.executor.cores": "4"}, {"spark.cores.max": "4", **DYNAMIC}),
        (STANDALONE, {"spark.executor.cores": "4", **FIXED}, {"spark.cores.max": "4"}),
        ("yarn", {}, {"spark.dynamicAllocation.maxExecutors": "2", **DYNAMIC}),
        ("yarn", {"spark.executor.instances": "9"}, {"spark.dynamicAllocation.maxExecutors": "9", **DYNAMIC}),
        ("k8s://https://host:6443", {}, {"spark.dynamicAllocation.maxExecutors": "2", **DYNAMIC}),
        ("k8s://https://host:6443", FIXED, {}),
        ("mesos://host", {}, {}),
    ],
)
def test_by_default_no_driver_takes_a_whole_cluster(
    master: str, known: dict[str, str], chosen: dict[str, str]
) -> None:
    found = cluster_defaults(master, 120, known)

    assert chosen.items() <= found.items()
    assert bool(found) == bool(chosen)
    if chosen.get("spark.dynamicAllocation.enabled"):
        assert found["spark.dynamicAllocation.executorIdleTimeout"] == "120s"
    assert must_stop(master, {**known, **found}) == (
        master.startswith("mesos") or FIXED.items() <= known.items()
    )
