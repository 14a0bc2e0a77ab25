"""`perago start`: what it refuses before it starts, each in one line with the remedy, and that it starts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from perago import load_tasks
from perago.backend import open_local_orchestrator
from perago.cli import app
from perago.runtime.registration import apply_changes, plan_changes
from perago.runtime.root.state_dir import locked_root
from perago.settings import LAKEFS_NAMES, load_settings
from tests.support.servers.scripted_server import Answer, Request, scripted

Module = Callable[[str, str], str]
SERVERS = ("CONDUCTOR_SERVER_URL", *LAKEFS_NAMES)
TASK = """
@task(name="started", owner_email="a@b.c", workspace=WorkspaceSpec({spec}), controls=TaskControls({controls}))
def started(workspace: Path, params: Params) -> Result: ...
"""


@pytest.fixture(autouse=True)
def no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def target(module: Module) -> str:
    return module("starts.py", TASK.format(spec="", controls=""))


def start(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(app, ["start", *arguments], env=environ)


def error_of(result: Result) -> str:
    """The one line that a refused start prints."""
    assert result.exit_code == 1, result.output
    *notes, line = result.stderr.splitlines()
    assert all("was registered" in note for note in notes)
    return line


def test_without_lakefs_it_says_what_to_set(target: str) -> None:
    assert error_of(start(target)) == (
        f"error: lakeFS and Conductor are not configured: set {', '.join(LAKEFS_NAMES)} (or run `lakectl config`) "
        "and CONDUCTOR_SERVER_URL, or add --local to work on the embedded servers"
    )


def test_half_of_the_lakefs_settings_is_an_error_that_names_the_missing_ones(target: str) -> None:
    assert "set LAKECTL_CREDENTIALS_ACCESS_KEY_ID" in error_of(
        start(target, LAKECTL_SERVER_ENDPOINT_URL="http://l")
    )


def test_without_conductor_it_says_what_to_set(target: str) -> None:
    lakefs = dict.fromkeys(LAKEFS_NAMES, "http://127.0.0.1:9")

    assert error_of(start(target, **lakefs)) == (
        "error: Conductor is not configured: set CONDUCTOR_SERVER_URL, or add --local to work on the embedded servers"
    )


@pytest.mark.parametrize("command", ["start", "run", "register", "submit", "history"])
def test_a_secret_that_a_server_quotes_is_not_shown(module: Module, tmp_path: Path, command: str) -> None:
    target = module("starts.py", TASK.format(spec="", controls=""))
    given = {"workspace": "${workflow.input.workspace}", "params": {"stem": "x"}}
    step = {"name": "started", "taskReferenceName": "one", "inputParameters": given}
    (tmp_path / "flow.json").write_text(json.dumps({"name": "flow", "tasks": [step]}))
    arguments = {
        "start": [target],
        "run": ["flow.json", "--tasks", target, "--workspace", "songs", "--remote", "--yes"],
        "register": [target, "--yes"],
        "submit": ["flow", "--workspace", "songs", "--yes"],
        "history": ["songs", "--remote"],
    }

    def refuse(request: Request) -> Answer:
        return 400, {"message": "cannot serve http://me:pass%2Fword@here to the-secret-key"}

    with scripted(refuse) as server:
        url = server.url.replace("//", "//me:pass%2Fword@")
        lakefs = dict(zip(LAKEFS_NAMES, (url, "key", "the-secret-key"), strict=True))
        done = CliRunner().invoke(
            app, [command, *arguments[command]], env={"CONDUCTOR_SERVER_URL": url, **lakefs}
        )

    assert done.exit_code == 1
    assert "cannot serve http://me:***@here to ***" in done.stderr


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_named(target: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        keys = dict.fromkeys(SERVERS, "a-key")
        line = error_of(
            start(target, **{**keys, "CONDUCTOR_SERVER_URL": address, "LAKECTL_SERVER_ENDPOINT_URL": address})
        )

    assert f"no lakeFS at {address}: check LAKECTL_SERVER_ENDPOINT_URL" in line


def test_a_taskdef_that_is_not_registered_is_named_with_the_command_that_mends_it(target: str) -> None:
    line = error_of(start(target, "--local"))

    assert line == (
        "error: TaskDef 'started' is not registered. Run `perago register --local starts.py`, or start with --register"
    )


def test_the_command_that_mends_a_missing_taskdef_works_when_pasted(target: str, tmp_path: Path) -> None:
    root = str(tmp_path / "a root")
    line = error_of(start(target, "--local", "--root", root))
    _, command, _ = line.split("`")
    perago, *arguments = shlex.split(command)

    mended = CliRunner().invoke(app, arguments)
    held = str(tmp_path / "held")
    with locked_root(Path(held)):
        again = error_of(start(target, "--local", "--root", root, PERAGO_WORKSPACE_ROOT=held))

    assert perago == "perago"
    assert mended.stdout == "started: created\n", mended.output
    assert "in use by another worker" in again, "the TaskDefs are not in the way any more"


def test_a_taskdef_that_differs_is_shown_with_the_difference(
    module: Module, target: str, tmp_path: Path
) -> None:
    orchestrator = open_local_orchestrator(load_settings({}, root=tmp_path / ".perago"))
    apply_changes(orchestrator, plan_changes(orchestrator, load_tasks([target])))
    orchestrator.close()
    changed = module("changed.py", TASK.format(spec="", controls="retry=RetryPolicy(count=7)"))

    line = error_of(start(changed, "--local"))

    assert "TaskDef 'started' differs: retryCount is 3, declared 7" in line
    assert "perago register --local changed.py" in line


def test_a_hard_fence_refuses_a_task_that_replaces(target: str) -> None:
    line = error_of(start(target, "--local", PERAGO_FENCE="hard"))

    assert "PERAGO_FENCE=hard, but task 'started' replaces abandoned publications" in line
    assert 'on_abandoned="supersede"' in line


def test_a_root_that_cannot_be_written_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    line = error_of(
        start(target, "--local", "--register", PERAGO_WORKSPACE_ROOT=str(tmp_path / "file" / "below"))
    )

    assert "is not writable" in line


def test_a_root_that_another_worker_holds_is_refused(target: str, tmp_path: Path) -> None:
    with locked_root(tmp_path / "held"):
        line = error_of(start(target, "--local", "--register", PERAGO_WORKSPACE_ROOT=str(tmp_path / "held")))

    assert f"in use by another worker (process {os.getpid()})" in line


def test_a_wrong_port_is_refused(target: str) -> None:
    assert "--http 'ninety' is not PORT" in error_of(
        start(target, "--local", "--register", "--http", "ninety")
    )


@pytest.mark.slow
def test_a_worker_serves_its_health_and_drains_on_a_signal(target: str, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "perago", "start", target, "--local", "--register", "--http", str(port)),
            *("--log-format", "json"),
        ],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    )

    with worker:
        health = json.loads(page(port, "/healthz"))
        metrics = page(port, "/metrics")
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)

    assert [json.loads(line)["level"] for line in said.splitlines() if line.startswith('{"time"')]
    root = tmp_path / ".perago"
    assert f"with embedded lake in {root / 'lake'} and embedded orchestrator in " in said
    assert health["healthy"]
    assert "perago_in_flight 0.0" in metrics
    assert worker.returncode == 0


def page(port: int, path: str) -> str:
    """Return the page as soon as it is served."""
    for _ in range(1200):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.URLError:
            time.sleep(0.05)
    raise AssertionError("nobody serves the page")
