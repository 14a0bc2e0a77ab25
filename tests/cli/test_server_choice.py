"""Which servers commands use: by option or PERAGO_SERVERS, never by LAKECTL_* alone; and the question before a change."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.attempt import Attempt
from perago.protocol.names import claim_branch_name
from perago.settings import LAKEFS_NAMES
from tests.conftest import ConductorServer, LakefsServer
from tests.support.processes.commands import CommandResult, run_perago
from tests.support.servers.scripted_server import NGINX, Answer, Request, scripted

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

    def perago(self, *arguments: str, typed: str | None = None) -> CommandResult:
        """Run a command; with `typed` its stdin is a terminal with this answer."""
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
    """A shell whose servers answer nothing, so that a command that uses them is detected."""
    environ = dict.fromkeys(LAKEFS_NAMES, "http://127.0.0.1:9")
    return Shell(tmp_path, {**environ, "CONDUCTOR_SERVER_URL": "http://127.0.0.1:9/api"})


ON_A_LAKE = {
    "put": ("put", "songs", "in"),
    "branch": ("branch", "songs", "other"),
    "ls": ("ls", "songs"),
    "cat": ("cat", "songs", "data/input.txt"),
    "history": ("history", "songs"),
    "diff": ("diff", "songs", "main", "dev"),
    "sweep": ("sweep", "--yes"),
    "run": ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs@dev"),
}
ON_RUNS = {"runs": ("runs",), "show": ("show",), "logs": ("logs",)}


@pytest.fixture
def filled(nobody: Shell) -> Shell:
    """A shell whose embedded lake has a repository and a run."""
    for command in (("put", "songs", "in", "--create"), ("branch", "songs", "dev"), ON_A_LAKE["run"]):
        assert nobody.perago(*command).code == 0
    return nobody


def test_every_command_stays_embedded_whatever_the_environment_names_and_says_so(filled: Shell) -> None:
    root = filled.folder / ".perago"
    lake = f"lake: embedded, {root / 'lake'}"
    for name, command in {**ON_A_LAKE, **ON_RUNS}.items():
        done = filled.perago(*command)

        assert done.code == 0, (name, done.err)
        told = done.err.splitlines()
        unused = [line for line in told if f"configured, but not used: this works on {root};" in line]
        assert len(unused) == 1, (name, told)
        assert unused[0].startswith("lakeFS (LAKECTL_*) ")
        assert unused[0].endswith("add --remote, or set PERAGO_SERVERS=remote, to work on the real servers")
        assert told.count(lake) == (name in ON_A_LAKE), (name, told)


def test_an_explicit_choice_prints_nothing_about_other_servers(filled: Shell) -> None:
    by_option = filled.perago("ls", "songs", "--local")
    filled.environ["PERAGO_SERVERS"] = "embedded"
    by_variable = filled.perago("ls", "songs")

    for done in (by_option, by_variable):
        assert (done.code, done.err) == (0, f"lake: embedded, {filled.folder / '.perago' / 'lake'}\n")


def test_the_variable_means_the_real_servers_for_every_command_and_local_wins_over_it(filled: Shell) -> None:
    filled.environ["PERAGO_SERVERS"] = "remote"
    for name, command in ON_A_LAKE.items():
        agreed = ("--yes",) if name in ("put", "branch", "run") else ()

        remote = filled.perago(*command, *agreed)
        local = filled.perago(*command, "--local")

        assert remote.code == 1, name
        assert remote.err.splitlines()[-1].startswith("error: no lakeFS at "), name
        assert local.code == 0, local.err
        assert f"lake: embedded, {filled.folder / '.perago' / 'lake'}" in local.err.splitlines()


def test_on_the_embedded_servers_only_deleting_commands_ask(filled: Shell) -> None:
    run = json.loads(filled.perago("runs", "--json").out)[0]["id"]

    for command in (("sweep", "--local"), ("runs", "prune", "--older-than", "0s")):
        assert filled.perago(*command).code == 2, "there is no terminal to ask on"
    refused = filled.perago("runs", "prune", "--older-than", "0s", typed="n")
    assert (refused.code, refused.out) == (1, "")
    assert f"would remove: {run}  {filled.name}  " in refused.err
    assert (filled.folder / ".perago" / "runs" / run).is_dir()
    done = filled.perago("runs", "prune", "--older-than", "0s", typed="y")
    assert done.code == 0
    assert re.fullmatch(r"1 removed \([\d.]+ KB\), 0 kept", done.out.splitlines()[-1])
    assert filled.perago("sweep", "--dry-run").code == 0


def test_a_sweep_of_lakefs_shows_what_would_go_and_asks(
    real: Shell, lakefs_server: LakefsServer, lakefs_repository: str
) -> None:
    task = uuid.uuid4()
    attempt = Attempt(str(uuid.uuid4()), str(task), "r", "t", 0, 0, 0, scheduled_time=1)
    claim = claim_branch_name(attempt, "main")
    branches = f"/repositories/{lakefs_repository}/branches"
    lakefs_server.call("POST", branches, {"name": claim, "source": "main", "hidden": True})
    command = ("sweep", lakefs_repository, "--remote")

    unasked = real.perago(*command)
    refused = real.perago(*command, typed="n")

    assert (unasked.code, refused.code) == (2, 1)
    assert f"would remove: {lakefs_repository}/{claim} (" in refused.err
    assert lakefs_server.call("GET", f"{branches}/{claim}")["id"] == claim
    done = real.perago(*command, typed="y")
    assert done.out.splitlines()[-1] == "1 removed, 0 kept", done.err


def test_registering_fencing_and_submitting_show_what_would_change_and_ask(
    real: Shell, lakefs_server: LakefsServer, conductor_server: ConductorServer, lakefs_repository: str
) -> None:
    register = ("register", "tasks.py", "flow.json")
    submit = ("submit", real.name, "--workspace", lakefs_repository)
    fence = ("fence", "install", lakefs_repository)

    refused = real.perago(*register, typed="n")
    assert refused.code == 1
    assert f"Conductor: {conductor_server.url}\n{real.name}: would be created\n" in refused.err
    assert real.name not in json.dumps(conductor_server.call("GET", "/metadata/taskdefs"))

    done = real.perago(*register, typed="y")
    assert done.out.startswith(f"{real.name}: created\n"), done.err
    assert real.perago(*register, typed="").out.startswith(f"{real.name}: unchanged\n"), (
        "there is nothing to ask"
    )

    refused = real.perago(*submit, typed="n")
    head = lakefs_server.call("GET", f"/repositories/{lakefs_repository}/branches/main")["commit_id"]
    assert refused.code == 1
    assert f'"ref": "{head}"' in refused.err
    assert f"Start workflow {real.name} version 1 there?" in refused.err
    found = conductor_server.call("GET", f"/workflow/search?query=workflowType%3D{real.name}")
    assert found["totalHits"] == 0

    refused = real.perago(*fence, typed="n")
    assert refused.code == 1
    assert f"lake: lakeFS 1.84.0 at {lakefs_server.url}\n" in refused.err
    assert real.perago(*fence, typed="y").code == 0


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
        "error: this command asks before it changes anything on the real servers, and there is no terminal to ask on: "
        "add --yes to go ahead\n"
    )


def test_a_remote_command_without_servers_says_what_to_set(nobody: Shell) -> None:
    for name in LAKEFS_NAMES:
        del nobody.environ[name]

    put = nobody.perago("put", "songs", "in", "--remote", "--yes")
    run = nobody.run("songs", "--remote", "--yes")

    assert f"lakeFS is not configured: set {', '.join(LAKEFS_NAMES)} (or run `lakectl config`)" in put.err
    assert "lakeFS is not configured: set LAKECTL_" in run.err
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

    # A run resumes on its own servers, whatever the command line says.
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
    nobody.environ["PERAGO_SERVERS"] = "remote"
    resumed = nobody.perago("run", "--resume")
    assert resumed.err.startswith("error: the state of one is gone from "), (
        "the record decides, not the setting"
    )


def test_lakectl_s_file_is_enough_for_remote_and_makes_nothing_remote_by_itself(
    real: Shell, lakefs_server: LakefsServer, lakefs_repository: str
) -> None:
    url, key, secret = (real.environ.pop(name) for name in LAKEFS_NAMES)
    text = f"credentials:\n  access_key_id: {key}\n  secret_access_key: {secret}\nserver:\n  endpoint_url: {url}\n"
    (real.folder / ".lakectl.yaml").write_text(text)

    remote = real.perago("put", lakefs_repository, "in", "--remote", "--yes")
    read = real.perago("history", lakefs_repository, "--remote")
    look = real.perago("history", lakefs_repository)
    local = real.perago("put", "songs", "in", "--create")

    assert remote.code == 0, remote.err
    assert f"lake: lakeFS 1.84.0 at {lakefs_server.url}" in remote.err
    assert read.code == 0, read.err
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


def test_a_server_that_is_not_lakefs_is_reported_by_address_and_setting(nobody: Shell, stranger: str) -> None:
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


def test_a_server_that_is_not_conductor_is_reported_by_address_and_setting(
    real: Shell, stranger: str
) -> None:
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
