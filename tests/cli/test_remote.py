"""`--remote`: servers by name, what would change first, and a question; never by the environment alone."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.settings import LAKEFS_NAMES
from tests.conftest import ConductorServer, LakefsServer
from tests.support.commands import Said, run_perago
from tests.support.scripted_server import NGINX, Answer, Request, scripted

# Every test starts processes.
pytestmark = pytest.mark.slow

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task

class Nothing(BaseModel): ...

@task(name="{name}", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"),
      controls=TaskControls(retry=RetryPolicy(count={retries}, delay_seconds=0)))
def make(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "made.txt").write_text("made")
    return Nothing()
"""


class Shell:
    """A user's shell in a folder, whose environment names real servers."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        hidden = ("PERAGO_", "LAKECTL_", "CONDUCTOR_")
        plain = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self.environ = {**plain, "HOME": str(folder), **environ}
        self.name = f"remote_{uuid.uuid4().hex[:10]}"
        (folder / "in" / "data").mkdir(parents=True)
        (folder / "in" / "data" / "input.txt").write_text("input")
        self.write_tasks(retries=2)
        step = {"name": self.name, "taskReferenceName": "step", "type": "SIMPLE"}
        step["inputParameters"] = {"workspace": "${workflow.input.workspace}", "params": {}}
        flow = {"name": self.name, "version": 1, "schemaVersion": 2, "tasks": [step]}
        flow |= {"ownerEmail": "a@example.com", "outputParameters": {"ref": "${step.output.workspace.ref}"}}
        (folder / "flow.json").write_text(json.dumps(flow))

    def write_tasks(self, *, retries: int) -> None:
        (self.folder / "tasks.py").write_text(TASKS.format(name=self.name, retries=retries))

    def perago(self, *arguments: str, typed: str | None = None) -> Said:
        """A command; with `typed` its stdin is a terminal on which somebody answers so."""
        if typed is None:
            return run_perago(arguments, folder=self.folder, environ=self.environ)
        ours, theirs = pty.openpty()
        try:
            os.write(ours, typed.encode() + b"\n")
            return run_perago(arguments, folder=self.folder, environ=self.environ, stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)

    def run(self, repository: str, *options: str, typed: str | None = None) -> Any:
        flow = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", repository, "--json")
        return self.perago(*flow, *options, typed=typed)


@pytest.fixture
def real(lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path) -> Shell:
    keys = (lakefs_server.url, lakefs_server.access_key_id, lakefs_server.secret_access_key)
    environ = dict(zip(LAKEFS_NAMES, keys, strict=True))
    return Shell(tmp_path, {**environ, "CONDUCTOR_SERVER_URL": conductor_server.url})


@pytest.fixture
def nobody(tmp_path: Path) -> Shell:
    """A shell whose servers would answer nothing, so that whoever asks them is found out."""
    environ = dict.fromkeys(LAKEFS_NAMES, "http://127.0.0.1:9")
    return Shell(tmp_path, {**environ, "CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api"})


def test_servers_of_the_environment_are_left_alone_without_remote_and_a_line_says_so(nobody: Shell) -> None:
    put = nobody.perago("put", "songs", "in", "--create")
    branch = nobody.perago("branch", "songs", "dev")
    done = nobody.run("songs@dev")

    root = nobody.folder / ".perago"
    for command in (put, branch):
        assert command.code == 0, command.err
        assert command.err.splitlines()[0] == (
            f"lakeFS (LAKECTL_*) is configured, but not used: this works on {root}; "
            "add --remote to work on the real servers"
        )
    assert done.code == 0, done.err
    assert "lakeFS (LAKECTL_*) and Conductor (CONDUCTOR_SERVER_URL) are configured, but not used" in done.err
    assert json.loads(done.out)["status"] == "COMPLETED"


@pytest.mark.parametrize(
    "command",
    [
        ("run", "flow.json", "--tasks", "tasks.py", "--remote"),
        ("put", "songs", "in", "--remote"),
        ("branch", "songs", "dev", "--remote"),
    ],
)
def test_without_a_terminal_and_without_yes_a_remote_command_is_refused_in_one_line(
    nobody: Shell, command: tuple[str, ...]
) -> None:
    done = nobody.perago(*command)

    assert done.code == 2
    assert done.err == (
        "error: --remote asks before it changes anything, and there is no terminal to ask on: add --yes to go ahead\n"
    )


def test_a_remote_command_without_servers_says_what_to_set(nobody: Shell) -> None:
    for name in LAKEFS_NAMES:
        del nobody.environ[name]

    put = nobody.perago("put", "songs", "in", "--remote", "--yes")
    run = nobody.run("songs", "--remote", "--yes")

    assert f"--remote needs lakeFS: set {', '.join(LAKEFS_NAMES)}" in put.err
    assert "--remote needs lakeFS and Conductor: set lakeFS (LAKECTL_" in run.err
    assert (put.code, run.code) == (1, 1)


def test_a_remote_run_shows_the_servers_and_what_would_change_and_does_nothing_on_a_no(
    real: Shell, lakefs_server: LakefsServer, conductor_server: ConductorServer, lakefs_repository: str
) -> None:
    refused = real.run(lakefs_repository, "--remote", typed="n")

    assert refused.code == 1
    assert f"lake: lakeFS 1.84.0 at {lakefs_server.url}\n" in refused.err
    assert f"orchestrator: Conductor 3.32.3 at {conductor_server.url}\n" in refused.err
    assert f"\n{real.name}: would be created\n" in refused.err
    assert f"workflow {real.name} version 1: would be created\n" in refused.err
    assert "nothing was changed" in refused.err
    assert real.name not in json.dumps(conductor_server.call("GET", "/metadata/taskdefs"))

    done = real.run(lakefs_repository, "--remote", "--root", "elsewhere", typed="y")
    real.write_tasks(retries=1)
    flow = json.loads((real.folder / "flow.json").read_text())
    flow["outputParameters"] = {"other": "${step.output.workspace.ref}"}
    (real.folder / "flow.json").write_text(json.dumps(flow))
    changed = real.run(lakefs_repository, "--remote", typed="n")

    assert json.loads(done.out)["status"] == "COMPLETED", done.err
    head = lakefs_server.call("GET", f"/repositories/{lakefs_repository}/branches/main")["commit_id"]
    assert json.loads(done.out)["output"]["ref"] == head
    assert list((real.folder / "elsewhere" / "runs").iterdir()), "local state is where --root says"
    assert not (real.folder / "elsewhere" / "lake").exists()
    assert f"\n{real.name}: would be updated\n  - retryCount: 2\n  + retryCount: 1\n" in changed.err
    assert f"workflow {real.name} version 1: would be updated\n" in changed.err
    assert '  + outputParameters.other: "${step.output.workspace.ref}"\n' in changed.err

    # A run goes on where it is, whatever the command line says of servers.
    again = real.perago("run", "--resume", "--root", "elsewhere", "--json")
    assert json.loads(again.out) == json.loads(done.out)
    assert "is on lakeFS and Conductor" in again.err


def test_a_run_on_the_embedded_servers_is_not_resumed_remotely(nobody: Shell) -> None:
    record = nobody.folder / ".perago" / "runs" / "one" / "run.json"
    record.parent.mkdir(parents=True)
    run = {"id": "one", "workflow_id": "w", "workflow_name": "f", "targets": [], "folder": str(nobody.folder)}
    record.write_text(json.dumps(run))

    done = nobody.perago("run", "--resume", "--remote")

    assert (done.code, done.err) == (
        1,
        "error: run one is on the embedded servers: leave out --remote\n",
    )


def test_lakectl_s_file_is_enough_for_remote_and_makes_nothing_remote_by_itself(
    real: Shell, lakefs_server: LakefsServer, lakefs_repository: str
) -> None:
    url, key, secret = (real.environ.pop(name) for name in LAKEFS_NAMES)
    text = f"credentials:\n  access_key_id: {key}\n  secret_access_key: {secret}\nserver:\n  endpoint_url: {url}\n"
    (real.folder / ".lakectl.yaml").write_text(text)

    remote = real.perago("put", lakefs_repository, "in", "--remote", "--yes")
    look = real.perago("history", lakefs_repository)
    local = real.perago("put", "songs", "in", "--create")

    assert remote.code == 0, remote.err
    assert f"lake: lakeFS 1.84.0 at {lakefs_server.url}" in remote.err
    assert "there is no lake below" in look.err
    assert "lake: embedded" in local.err
    assert "--remote" not in local.err


def _nginx(request: Request) -> Answer:
    return 200, NGINX.format("200 OK")


def _json_to_all(request: Request) -> Answer:
    return 200, {"name": "anything"}


@pytest.fixture(params=[_nginx, _json_to_all], ids=["a web page", "some JSON"])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    with scripted(request.param) as server:
        yield server.url.removesuffix("/api")


def test_what_is_not_lakefs_is_told_by_address_and_setting(nobody: Shell, stranger: str) -> None:
    nobody.environ[LAKEFS_NAMES[0]] = stranger
    commands = [
        nobody.perago("start", "tasks.py"),
        nobody.run("songs", "--remote", "--yes"),
        nobody.perago("put", "songs", "in", "--remote", "--yes"),
    ]

    for done in commands:
        assert done.code == 1
        (line,) = done.err.splitlines()
        assert line.startswith(f"error: no lakeFS at {stranger}: check LAKECTL_SERVER_ENDPOINT_URL (")


def test_what_is_not_conductor_is_told_by_address_and_setting(real: Shell, stranger: str) -> None:
    real.environ["CONDUCTOR_SERVER_URL"] = f"{stranger}/api"
    commands = [real.perago("start", "tasks.py"), real.run("songs", "--remote", "--yes")]

    for done in commands:
        assert done.code == 1
        line = done.err.splitlines()[-1]
        assert line.startswith(f"error: no Conductor at {stranger}/api: check CONDUCTOR_SERVER_URL")


def test_a_worker_s_log_names_both_servers_with_their_versions(
    real: Shell, lakefs_server: LakefsServer, conductor_server: ConductorServer
) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "perago", "start", "tasks.py", "--register"],
        cwd=real.folder,
        env=real.environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    with worker:
        assert worker.stderr is not None
        said = next((line for line in worker.stderr if " slots, with " in line), "")
        worker.send_signal(signal.SIGTERM)
        worker.stderr.read()

    assert f"with lakeFS 1.84.0 at {lakefs_server.url} and Conductor 3.32.3 at {conductor_server.url}" in said
    assert worker.returncode == 0


def test_wrong_keys_are_told_as_such(real: Shell) -> None:
    real.environ[LAKEFS_NAMES[2]] = "wrong"

    done = real.perago("branch", "songs", "dev", "--remote", "--yes")

    assert done.code == 1
    assert "does not know the keys: check LAKECTL_CREDENTIALS_ACCESS_KEY_ID" in done.err


def test_a_misspelt_setting_is_a_warning(nobody: Shell) -> None:
    nobody.environ["PERAGO_ROOTS"] = "x"

    done = nobody.perago("check", "tasks.py")

    assert done.code == 0
    assert (
        "warning: PERAGO_ROOTS is not a setting of Perago, and is not read; did you mean PERAGO_ROOT?"
        in done.err
    )
