"""`perago run` and `perago start` with an OpenLineage receiver over HTTP: one that works, and one that does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perago.runtime.worker.lineage import LAST_SEND_SECONDS
from tests.support.processes.commands import Shell
from tests.support.servers.lineage_receiver import judged
from tests.support.servers.scripted_server import Request, scripted

TASKS = """
import os
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, TaskTerminalError, WorkspaceSpec, require_file, task


class Params(BaseModel):
    fail_first: bool = False
    secret: str = "in-params-only"


class Result(BaseModel):
    files: int


CONTROLS = TaskControls(retry=RetryPolicy(count=2, delay_seconds=0))
MAKE = WorkspaceSpec(
    reads=("data",), writes=("made",), pre=(require_file("data/input.txt"),), post=(require_file("made/a.txt"),)
)


@task(name="make", owner_email="a@example.com", workspace=MAKE, controls=CONTROLS)
def make(workspace: Path, params: Params) -> Result:
    tried = Path(os.environ["TRIED"])
    if params.fail_first and not tried.exists():
        tried.touch()
        raise TaskFailed("not the first time")
    (workspace / "made").mkdir(exist_ok=True)
    (workspace / "made/a.txt").write_text("made")
    return Result(files=1)


@task(name="never", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/made"), controls=CONTROLS)
def never(workspace: Path, params: Params) -> Result:
    raise TaskTerminalError("no use")
"""
MAKE = ("run", "make.json", "--tasks", "tasks.py", "--workspace", "songs")


def flow(*steps: tuple[str, dict[str, Any]]) -> str:
    tasks, workspace = [], "${workflow.input.workspace}"
    for name, params in steps:
        given = {"workspace": workspace, "params": params}
        tasks.append({"name": name, "taskReferenceName": name, "type": "SIMPLE", "inputParameters": given})
        workspace = f"${{{name}.output.workspace}}"
    return json.dumps({"name": "flow", "version": 1, "schemaVersion": 2, "tasks": tasks})


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    ours = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "OPENLINEAGE")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "in" / "data").mkdir(parents=True)
    (tmp_path / "in" / "data" / "input.txt").write_text("input")
    (tmp_path / "make.json").write_text(flow(("make", {"fail_first": True})))
    (tmp_path / "both.json").write_text(flow(("make", {"fail_first": True}), ("never", {})))
    return Shell(tmp_path, environ | {"TRIED": str(tmp_path / "tried"), "HOME": str(tmp_path)})


def imported(*arguments: str) -> tuple[str, ...]:
    return (*arguments, "--import", "songs=in")


def test_a_run_with_failures_is_reported_as_it_was(shell: Shell) -> None:
    with scripted(lambda _: (201, {})) as receiver:
        shell.environ["OPENLINEAGE_URL"] = receiver.url
        code = shell.run(*imported("run", "both.json", *MAKE[2:])).code
    events = [judged(json.loads(request.body)) for request in receiver.requests]

    assert code == 1
    assert [(event["job"]["name"], event["eventType"]) for event in events] == [
        ("flow.make", "START"),
        ("flow.make", "FAIL"),
        ("flow.make", "START"),
        ("flow.make", "COMPLETE"),
        ("flow.never", "START"),
        ("flow.never", "FAIL"),
    ]
    assert set(Counter(event["run"]["runId"] for event in events).values()) == {2}
    assert len({event["run"]["facets"]["parent"]["run"]["runId"] for event in events}) == 1
    failed, complete = events[1], events[3]
    assert failed["run"]["facets"]["errorMessage"]["message"] == "not the first time"
    assert [event["outputs"] != [] for event in events] == [False, False, False, True, False, False]
    (made,) = complete["outputs"]
    assert made["namespace"].startswith("perago://")
    assert made["namespace"].endswith("/songs")
    assert made["name"] == "main/made"
    assert made["outputFacets"]["outputStatistics"]["fileCount"] == 1
    (read,) = complete["inputs"]
    # The second step reads the commit that the first one has published.
    assert (
        events[4]["inputs"][0]["facets"]["version"] == made["facets"]["version"] != read["facets"]["version"]
    )
    assert events[4]["inputs"][0]["name"] == made["name"]
    assert read["inputFacets"]["dataQualityAssertions"]["assertions"][0]["success"]
    assert "in-params-only" not in str(events)


@pytest.mark.slow
def test_a_started_worker_reports_too(shell: Shell) -> None:
    assert shell.run(*imported(*MAKE)).code == 0
    assert shell.run("register", "tasks.py", "make.json", "--local", "--yes").code == 0
    with scripted(lambda _: (201, {})) as receiver:
        shell.environ["OPENLINEAGE_URL"] = receiver.url
        worker = shell.start("start", "tasks.py", "--local", "--register")
        with worker:
            submitted = shell.run("submit", "flow", "--workspace", "songs", "--local", "--yes")
            assert submitted.code == 0, submitted.err
            deadline = time.monotonic() + 60
            while len(receiver.requests) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=60)
    events = [judged(json.loads(request.body)) for request in receiver.requests]

    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert worker.returncode == 0


def slow(_: Request) -> tuple[int, object]:
    time.sleep(30)
    return 201, {}


def test_without_a_configuration_nothing_is_sent(shell: Shell) -> None:
    with scripted(lambda _: (201, {})) as receiver:
        assert shell.run(*imported(*MAKE)).code == 0
    assert receiver.requests == []


@pytest.mark.parametrize("answer", [slow, lambda _: (401, {}), lambda _: (503, {}), None])
def test_a_receiver_that_is_slow_refuses_or_is_away_costs_a_run_no_more_than_the_last_send(
    shell: Shell, answer: Callable[[Request], tuple[int, object]] | None
) -> None:
    began = time.monotonic()
    assert shell.run(*imported(*MAKE)).code == 0
    without = time.monotonic() - began
    (shell.folder / "tried").unlink()

    began = time.monotonic()
    if answer is None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            shell.environ["OPENLINEAGE_URL"] = f"http://127.0.0.1:{taken.getsockname()[1]}"
            done = shell.run(*MAKE)
    else:
        with scripted(answer) as receiver:
            shell.environ["OPENLINEAGE_URL"] = receiver.url
            done = shell.run(*MAKE)
    took = time.monotonic() - began

    assert done.code == 0, done.err
    # The rest is for importing the client, and for a busy machine.
    assert took < without + LAST_SEND_SECONDS + 8
    assert done.err.count("lineage") <= 2
