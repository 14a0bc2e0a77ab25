"""`perago submit` as a user runs it: what it starts, what it prints, and each error in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.backend import open_local_lake, open_local_orchestrator
from perago.cli import app
from perago.settings import LAKEFS_NAMES, load_settings

TASKS = """
from pathlib import Path
from typing import Literal
from pydantic import BaseModel, Field
from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, task


class Params(BaseModel):
    text: str
    times: int = Field(default=1, ge=1)
    mode: Literal["write", "fail"] = "write"


class Result(BaseModel):
    length: int


CONTROLS = TaskControls(retry=RetryPolicy(count=0))


@task(name="{task}", owner_email="a@example.com", workspace=WorkspaceSpec(), controls=CONTROLS)
def make(workspace: Path, params: Params) -> Result:
    if params.mode == "fail":
        raise TaskFailed("told to fail")
    (workspace / "made.txt").write_text(params.text * params.times)
    return Result(length=len(params.text) * params.times)
"""
SERVERS = (
    "CONDUCTOR_SERVER_URL",
    "CONDUCTOR_AUTH_KEY",
    "CONDUCTOR_AUTH_SECRET",
    "PERAGO_ROOT",
    *LAKEFS_NAMES,
)


def flow(name: str = "flow", task: str = "make") -> dict[str, Any]:
    params = {
        "text": "${workflow.input.text}",
        "times": "${workflow.input.times}",
        "mode": "${workflow.input.mode}",
    }
    step = {"name": task, "taskReferenceName": "one", "type": "SIMPLE"}
    step["inputParameters"] = {"workspace": "${workflow.input.workspace}", "params": params}
    return {
        "name": name,
        "version": 2,
        "schemaVersion": 2,
        "tasks": [step],
        "inputTemplate": {"times": 1, "mode": "write"},
        "outputParameters": {"ref": "${one.output.workspace.ref}"},
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with tasks and a workflow, and no server configured."""
    monkeypatch.chdir(tmp_path)
    for name in SERVERS:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def root(folder: Path) -> Path:
    """A root where the workflow is registered and the repository `songs` is."""
    write_tasks(folder, "make", flow())
    registered = CliRunner().invoke(app, ["register", "tasks.py", "flow.json", "--local", "--root", "r"])
    assert registered.exit_code == 0, registered.output
    lake = open_local_lake(load_settings({}, root=folder / "r"))
    lake.create_repository("songs")
    lake.close()
    return folder / "r"


def write_tasks(folder: Path, task: str, definition: dict[str, Any]) -> None:
    (folder / "tasks.py").write_text(TASKS.replace("{task}", task))
    (folder / "flow.json").write_text(json.dumps(definition))


def submit(*arguments: str, **environ: str) -> Result:
    return CliRunner(env=environ).invoke(app, ["submit", *arguments, "--yes"])


def local(*arguments: str) -> Result:
    return submit(*arguments, "--local", "--root", "r")


GOOD = ("flow", "--workspace", "songs", "--input", '{"text": "la"}')


def started(root: Path) -> list[str]:
    """The ids of the workflows that were started."""
    orchestrator = open_local_orchestrator(load_settings({}, root=root))
    found = [run.id for run in orchestrator.workflows(100)]
    orchestrator.close()
    return found


def test_a_workflow_is_started_from_the_head_of_its_branch(root: Path) -> None:
    done = local(*GOOD)

    workflow_id = done.stdout.strip()
    assert started(root) == [workflow_id], done.output
    assert done.stderr.splitlines() == [
        f"embedded servers: {root}",
        f"`perago show {workflow_id} --root r` shows it, `perago logs {workflow_id} --root r` what its steps print",
    ]
    lake = open_local_lake(load_settings({}, root=root))
    orchestrator = open_local_orchestrator(load_settings({}, root=root))
    [step] = orchestrator.workflow(workflow_id).tasks
    workspace = {"repository": "songs", "branch": "main", "ref_type": "commit"}
    assert step.input == {
        "workspace": {**workspace, "ref": lake.head("songs", "main").id},
        "params": {"text": "la", "times": 1, "mode": "write"},
    }
    lake.close()
    orchestrator.close()


def test_submit_in_json_names_the_started_workflow(root: Path) -> None:
    told = json.loads(local(*GOOD, "--version", "2", "--json").stdout)

    assert (told["name"], told["version"], told["input"]["text"]) == ("flow", 2, "la")
    assert told["input"]["workspace"]["branch"] == "main"
    assert started(root) == [told["workflow_id"]]


def test_an_input_that_nothing_reads_is_warned_about_and_it_starts(root: Path) -> None:
    done = local("flow", "--workspace", "songs", "--input", '{"text": "la", "tims": 2}')

    assert done.exit_code == 0
    assert "warning: the workflow does not read the input 'tims'; did you mean 'times'?" in done.stderr


INPUT = "nothing was started: step 'one': "
REGISTER = "register it with `perago register WORKFLOW --local --root r`"
ERRORS: dict[str, tuple[tuple[str, ...], str]] = {
    "a misspelt name": (
        ("flwo",),
        f"no workflow 'flwo' is registered on embedded:{{root}}/orchestrator.db; did you mean 'flow'? Or {REGISTER}",
    ),
    "a name that nobody knows": (
        ("other_things",),
        f"no workflow 'other_things' is registered on embedded:{{root}}/orchestrator.db; there are: flow; {REGISTER}",
    ),
    "a version that is not there": (
        ("flow", "--version", "7"),
        f"the workflow 'flow' has no version 7: it has 2; {REGISTER}",
    ),
    "the file for the name": (
        ("flow.json",),
        "flow.json is a file, and submit takes the name of a registered workflow: "
        "`perago register flow.json --local --root r`, then `perago submit flow --local --root r`",
    ),
    "no workspace": (
        ("flow", "--input", '{"text": "la"}'),
        f"{INPUT}workspace is ${{{{workflow.input.workspace}}}}, but the input has no 'workspace': "
        "add --workspace REPO[@BRANCH]",
    ),
    "an input that is not there": (
        ("flow", "--workspace", "songs"),
        f"{INPUT}params.text is ${{{{workflow.input.text}}}}, but the input has no 'text': add 'text' to --input",
    ),
    "a misspelt input": (
        ("flow", "--workspace", "songs", "--input", '{"txt": "la"}'),
        f"{INPUT}params.text is ${{{{workflow.input.text}}}}, but the input has no 'text': did you write 'txt' for it?",
    ),
    "a number for a text": (
        ("flow", "--workspace", "songs", "--input", '{"text": 7}'),
        f"{INPUT}params.text must be a string, but ${{{{workflow.input.text}}}} is a number",
    ),
    "a number that is too small": (
        ("flow", "--workspace", "songs", "--input", '{"text": "la", "times": 0}'),
        f"{INPUT}params.times must be at least 1, but ${{{{workflow.input.times}}}} is not",
    ),
    "a word that is none of the choices": (
        ("flow", "--workspace", "songs", "--input", '{"text": "la", "mode": "read"}'),
        f"{INPUT}params.mode must be 'write' or 'fail', but ${{{{workflow.input.mode}}}} is not",
    ),
    "a branch for a commit": (
        ("flow", "--input", '{"text": "la", "workspace": "songs"}'),
        f"{INPUT}workspace must be an object or a list, but ${{{{workflow.input.workspace}}}} is a string",
    ),
    "a misspelt repository": (
        ("flow", "--workspace", "sogns", "--input", '{"text": "la"}'),
        "there is no repository 'sogns'; there are: songs; did you mean 'songs'?",
    ),
    "a misspelt branch": (
        ("flow", "--workspace", "songs@mian", "--input", '{"text": "la"}'),
        "repository 'songs' has no branch, tag or commit 'mian'; there are: main; did you mean 'main'?",
    ),
    "an input that is no JSON": (
        ("flow", "--input", "{text: la}"),
        "--input is not JSON: Expecting property name enclosed in double quotes, line 1 column 2; correct this line: "
        "{{text: la}}",
    ),
    "an input file that is not there": (
        ("flow", "--input", "nothing.json"),
        "--input 'nothing.json' is neither a file (there is flow.json) nor a JSON object: write --input "
        '\'{{"key": "value"}}\'',
    ),
}


@pytest.mark.parametrize(("arguments", "line"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line_and_nothing_is_started(
    root: Path, arguments: tuple[str, ...], line: str
) -> None:
    done = local(*arguments)

    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == f"error: {line.format(root=root)}"
    assert [text for text in done.stderr.splitlines() if not text.startswith("embedded")][:-1] == []
    assert started(root) == []


def test_a_root_where_nothing_is_registered_is_not_made(folder: Path) -> None:
    done = submit("flow", "--local", "--root", "nowhere")

    assert done.stderr == (
        f"error: nothing is registered below {folder / 'nowhere'}: "
        "`perago register TARGET WORKFLOW --local --root nowhere` does that, and --root says where\n"
    )
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("flow", "--root", "r"), "add --local"),
        (("flow", "--workspace", "songs", "--input", '{"workspace": {}}'), "the workspace is given twice"),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(
    folder: Path, arguments: tuple[str, ...], text: str
) -> None:
    done = submit(*arguments)

    assert done.exit_code == 2
    assert text in " ".join(done.stderr.replace("│", " ").split())


def test_without_a_server_it_says_what_to_set(folder: Path) -> None:
    assert submit("flow").stderr.startswith(
        "error: Conductor is not configured: set CONDUCTOR_SERVER_URL, or add --local"
    )


# --- with workers ------------------------------------------------------------------------------------------------


@contextmanager
def process(folder: Path, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of perago in a new process, and end it afterwards."""
    started = subprocess.Popen(
        [sys.executable, "-m", "perago", *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGTERM)
        started.communicate(timeout=120)


@pytest.mark.slow
def test_a_worker_of_the_same_root_runs_it_and_it_is_followed_to_its_end(root: Path) -> None:
    with process(root.parent, "start", "tasks.py", "--local", "--root", "r"):
        good = local(*GOOD, "--follow")
        bad = local(
            "flow", "--workspace", "songs", "--input", '{"text": "", "mode": "fail"}', "--follow", "--json"
        )

    workflow_id, *ending = good.stdout.splitlines()
    assert good.exit_code == 0, good.output
    assert workflow_id == started(root)[1]
    assert re.search(r"^one: COMPLETED after [0-9.]+ s songs main", good.stderr, re.MULTILINE)
    assert any(line.startswith("workflow flow: COMPLETED in ") for line in ending)
    told = json.loads(bad.stdout)
    assert (bad.exit_code, told["status"], told["workflow_id"]) == (1, "FAILED", started(root)[0])
    assert told["tasks"][0]["reason"] == "told to fail"


@pytest.mark.slow
def test_ctrl_c_stops_following_and_leaves_the_workflow_running(root: Path) -> None:
    with process(root.parent, "submit", *GOOD, "--follow", "--local", "--root", "r") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        workflow_id = following.stdout.readline().strip()
        while "one: SCHEDULED" not in following.stderr.readline():
            assert following.poll() is None
        following.send_signal(signal.SIGINT)
        said = following.communicate(timeout=60)[1]

    assert following.returncode == 1
    assert said == (
        f"error: stopped following; workflow {workflow_id} continues: `perago show {workflow_id} --root r` shows it, "
        f"`perago logs {workflow_id} --root r` what its steps print\n"
    )
    orchestrator = open_local_orchestrator(load_settings({}, root=root))
    assert orchestrator.workflow(workflow_id).status == "RUNNING"
    orchestrator.close()


@pytest.fixture
def real(
    folder: Path, conductor_server: Any, lakefs_server: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The name of a task and a workflow on the real servers, both registered; gone after the test."""
    name = f"test_submit_{uuid.uuid4().hex[:12]}"
    keys = (lakefs_server.url, lakefs_server.access_key_id, lakefs_server.secret_access_key)
    for variable, value in zip(LAKEFS_NAMES, keys, strict=True):
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", conductor_server.url)
    write_tasks(folder, name, flow(name, name))
    registered = CliRunner().invoke(app, ["register", "tasks.py", "flow.json", "--yes"])
    assert registered.exit_code == 0, registered.output
    yield name
    conductor_server.call("DELETE", f"/metadata/workflow/{name}/2")
    conductor_server.call("DELETE", f"/metadata/taskdefs/{name}")


def test_an_error_in_the_input_starts_nothing_on_a_real_conductor(
    real: str, conductor_server: Any, lakefs_repository: str
) -> None:
    where = ("--workspace", lakefs_repository)
    lines = [
        submit(*arguments).stderr.splitlines()[-1]
        for arguments in (
            (real, "--input", '{"text": "la"}'),
            (real, *where, "--input", '{"text": true}'),
            (f"{real}x", *where),
            (real, "--version", "1"),
            (real, "--workspace", f"{lakefs_repository}@mian", "--input", '{"text": "la"}'),
            (real, "--workspace", f"{lakefs_repository[:-1]}", "--input", '{"text": "la"}'),
        )
    ]

    *lines, misspelt = lines
    assert lines == [
        f"error: {INPUT}workspace is ${{workflow.input.workspace}}, but the input has no 'workspace': "
        "add --workspace REPO[@BRANCH]",
        f"error: {INPUT}params.text must be a string, but ${{workflow.input.text}} is true or false",
        f"error: no workflow '{real}x' is registered on {conductor_server.url}; did you mean '{real}'? "
        "Or register it with `perago register WORKFLOW`",
        f"error: the workflow '{real}' has no version 1: it has 2; "
        "register it with `perago register WORKFLOW`",
        f"error: repository '{lakefs_repository}' has no branch, tag or commit 'mian'; there are: main; "
        "did you mean 'main'?",
    ]
    assert misspelt.startswith(f"error: there is no repository '{lakefs_repository[:-1]}'; there are: ")
    assert misspelt.endswith(f"did you mean '{lakefs_repository}'?")
    assert conductor_server.call("GET", f"/workflow/running/{real}?version=2") == []


@pytest.mark.slow
def test_a_worker_of_real_servers_runs_what_is_submitted_and_what_curl_starts(
    real: str, folder: Path, conductor_server: Any, lakefs_server: Any, lakefs_repository: str
) -> None:
    where = ("--workspace", lakefs_repository)
    with process(folder, "start", "tasks.py"):
        followed = submit(real, *where, "--input", '{"text": "la"}', "--follow")
        # What docs/running-workers.md shows with curl.
        head = lakefs_server.call("GET", f"/repositories/{lakefs_repository}/branches/main")["commit_id"]
        workspace = {"repository": lakefs_repository, "branch": "main", "ref_type": "commit", "ref": head}
        by_hand = start_by_hand(
            f"{conductor_server.url}/workflow/{real}", {"text": "lala", "workspace": workspace}
        )
        status = until_over(conductor_server, by_hand)

    workflow_id, *ending = followed.stdout.splitlines()
    assert followed.exit_code == 0, followed.output
    assert followed.stderr.splitlines()[:3] == [
        f"Conductor: {conductor_server.url}",
        f"lake: lakeFS at {lakefs_server.url}",
        f"`perago show --remote {workflow_id}` shows it, `perago logs --remote {workflow_id}` what its steps print",
    ]
    assert any(line.startswith(f"workflow {real}: COMPLETED in ") for line in ending)
    assert conductor_server.call("GET", f"/workflow/{workflow_id}")["status"] == "COMPLETED"
    assert status == "COMPLETED"


def start_by_hand(url: str, payload: dict[str, Any]) -> str:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(payload).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def until_over(server: Any, workflow_id: str) -> str:
    deadline = time.monotonic() + 120
    while (status := server.call("GET", f"/workflow/{workflow_id}")["status"]) == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return str(status)
