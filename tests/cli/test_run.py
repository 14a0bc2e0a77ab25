"""`perago run` and the commands that look into the lake, as a user calls them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import run_perago

TASKS = """
import os, time
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, TaskInputError, TaskTerminalError, WorkspaceSpec, task


class Params(BaseModel):
    text: str = "made"
    fail_first: bool = False
    wait_for: str = ""


class Result(BaseModel):
    retry: int


CONTROLS = TaskControls(retry=RetryPolicy(count=2, delay_seconds=0))


@task(name="make", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/data"), controls=CONTROLS)
def make(workspace: Path, params: Params) -> Result:
    tries = Path(os.environ["TRIES"])
    count = int(tries.read_text()) if tries.exists() else 0
    tries.write_text(str(count + 1))
    if params.fail_first and count == 0:
        raise TaskFailed("not the first time")
    while params.wait_for and not Path(params.wait_for).exists():
        time.sleep(0.02)
    (workspace / "made.txt").write_text(params.text)
    return Result(retry=count)


@task(name="never", owner_email="a@example.com", workspace=WorkspaceSpec(), controls=CONTROLS)
def never(workspace: Path, params: Params) -> Result:
    raise TaskTerminalError("no use")


@task(name="judge", owner_email="a@example.com", workspace=WorkspaceSpec(), controls=CONTROLS)
def judge(workspace: Path, params: Params) -> Result:
    raise TaskInputError("the days end before they begin")
"""


class Shell:
    """A user's shell in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PERAGO_", "LAKECTL_", "CONDUCTOR_"))
        } | {"TRIES": str(folder / "tries")}
        (folder / "tasks.py").write_text(TASKS)
        (folder / "in" / "data").mkdir(parents=True)
        (folder / "in" / "data" / "input.txt").write_text("input")
        self.write_workflow({})

    def write_workflow(self, params: dict[str, Any], task: str = "make") -> None:
        step = {"name": task, "taskReferenceName": "step", "type": "SIMPLE"}
        step["inputParameters"] = {"workspace": "${workflow.input.workspace}", "params": params}
        flow = {"name": "flow", "version": 1, "schemaVersion": 2, "tasks": [step]}
        flow["outputParameters"] = {"ref": "${step.output.workspace.ref}"}
        (self.folder / "flow.json").write_text(json.dumps(flow))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        said = run_perago(arguments, folder=self.folder, environ=self.environment)
        return said.code, said.out, said.err

    def data(self, *arguments: str) -> Any:
        code, out, err = self.run(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


FLOW = ("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs")
FIRST = (*FLOW, "--import", "songs=in")


@pytest.mark.slow
def test_a_workflow_runs_and_the_lake_shows_what_it_published(shell: Shell) -> None:
    ended = shell.data(*FIRST)
    assert ended["status"] == "COMPLETED"
    assert [(task["reference"], task["status"], task["retry_count"]) for task in ended["tasks"]] == [
        ("step", "COMPLETED", 0)
    ]
    commits = shell.data("history", "songs")
    assert commits[0]["id"] == ended["output"]["ref"]
    assert commits[0]["parents"] == [commits[1]["id"]]
    assert commits[1]["parents"] == []
    assert commits[0]["metadata"]["perago.phase"] == "confirm"
    assert shell.data("diff", "songs", commits[1]["id"], "main") == [
        {"path": "data/made.txt", "change": "added", "size_before": None, "size_after": 4}
    ]
    assert [entry["path"] for entry in shell.data("ls", "songs", "main", "/data")] == [
        "data/input.txt",
        "data/made.txt",
    ]
    assert shell.run("cat", "songs", "main", "data/made.txt")[1] == "made"


@pytest.mark.slow
def test_a_retry_shows_every_attempt(shell: Shell) -> None:
    shell.write_workflow({"fail_first": True})
    tasks = shell.data(*FIRST)["tasks"]
    assert [(task["status"], task["retry_count"]) for task in tasks] == [("FAILED", 0), ("COMPLETED", 1)]
    assert tasks[0]["reason"] == "not the first time"


@pytest.mark.slow
def test_without_a_terminal_the_steps_are_plain_lines_and_the_end_names_ref_and_attempts(
    shell: Shell,
) -> None:
    shell.write_workflow({"fail_first": True})
    code, out, err = shell.run(*FIRST)
    assert code == 0
    # Where the retry has not been taken yet, the line says that it will be.
    assert re.search(r"step: FAILED after [0-9.]+ s: not the first time(; retry 1 of \d+ now)?\n", err)
    assert "2 attempts" in out
    assert "workflow flow: COMPLETED" in out
    assert "\x1b" not in out + err


@pytest.mark.slow
def test_a_workflow_that_fails_ends_non_zero_and_says_why(shell: Shell) -> None:
    shell.write_workflow({}, task="never")
    code, out, _ = shell.run(*FIRST)
    assert code == 1
    assert "FAILED_WITH_TERMINAL_ERROR" in out
    assert "no use" in out


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["failed", "terminal"])
def test_a_wrong_input_ends_a_run_at_once_whatever_workers_are_to_do(shell: Shell, setting: str) -> None:
    shell.environment["PERAGO_WRONG_INPUT"] = setting
    shell.write_workflow({}, task="judge")
    code, out, _ = shell.run(*FIRST, "--json")
    assert code == 1
    assert [(one["status"], one["retry_count"]) for one in json.loads(out)["tasks"]] == [
        ("FAILED_WITH_TERMINAL_ERROR", 0)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run",), "give a workflow (flow.py:NAME or a JSON file) and its tasks (--tasks TARGET)"),
        (("run", "nope.json", "--tasks", "tasks.py"), "there is no file nope.json"),
        (("run", "flow.json", "--tasks", "nope.py"), "nope.py"),
        (("run", "flow.json", "--tasks", "tasks.py", "--input", "nope"), "nor a JSON object"),
        (("run", "flow.json", "--tasks", "tasks.py", "--input", "[1]"), "must hold one JSON object"),
        (("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs"), "songs"),
        (("run", "flow.json", "--tasks", "tasks.py", "--import", "songs"), "REPO=DIR"),
        ((*FLOW, "--import", "songs=nope"), "there is no such folder"),
        (
            ("run", "flow.json", "--tasks", "tasks.py"),
            "the workflow's input has no 'workspace'; give --workspace REPO",
        ),
        (("run", "--resume"), "there is no run below"),
        (("history", "songs"), "there is no lake below"),
    ],
)
def test_a_wrong_command_line_is_told_in_words(shell: Shell, arguments: tuple[str, ...], text: str) -> None:
    code, _, err = shell.run(*arguments)
    assert code != 0
    assert text in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workspace", "told"),
    [
        ("song", "--workspace song: there is no repository 'song'; did you mean 'songs', which is imported?"),
        ("songs@dev", "--workspace songs@dev: a new repository has only the branch main; use songs"),
        (
            "other",
            "there is no repository 'other'; the lake holds none; `perago put REPO FOLDER --create` makes one",
        ),
    ],
)
def test_a_workspace_that_will_not_be_there_is_refused_before_the_import(
    shell: Shell, workspace: str, told: str
) -> None:
    refused = shell.run(*FIRST, "--workspace", workspace)
    assert refused[0] == 1
    assert refused[2].splitlines()[-1] == f"error: {told}"
    assert shell.run("history", "songs")[0] == 1, "nothing was imported"


@pytest.mark.slow
def test_a_task_that_no_module_declares_is_named_before_anything_runs(shell: Shell) -> None:
    shell.write_workflow({}, task="unheard_of")
    code, _, err = shell.run(*FIRST)
    assert code == 1
    assert "unheard_of" in err


@pytest.mark.slow
def test_a_workflow_with_errors_is_refused_with_all_of_them_before_anything_is_written(
    shell: Shell,
) -> None:
    shell.write_workflow({"txet": "x", "fail_first": "yes"})
    code, out, err = shell.run(*FIRST)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "error: step 'step': params.fail_first: Input should be a valid boolean, got str (flow.json)",
        "error: step 'step': 'make' has no params.txet; did you mean 'text'? (flow.json)",
    ]
    assert not (shell.folder / ".perago").exists()


@pytest.mark.slow
def test_a_hard_fence_refuses_a_task_that_replaces_before_anything_is_written(shell: Shell) -> None:
    shell.environment["PERAGO_FENCE"] = "hard"
    code, _, err = shell.run(*FIRST)
    assert code == 1
    assert "PERAGO_FENCE=hard, but task 'make' replaces abandoned publications" in err
    assert not (shell.folder / ".perago").exists()


SPARK_TASK = """
from pydantic import BaseModel
from perago import SparkWorkspace, WorkspaceSpec, task

class Nothing(BaseModel): ...

@task(name="on_the_branch", owner_email="a@example.com", workspace=WorkspaceSpec(placement="direct"))
def on_the_branch(workspace: SparkWorkspace, params: Nothing) -> Nothing: ...
"""


@pytest.mark.slow
def test_a_task_that_cannot_work_here_is_in_the_way_only_of_a_workflow_that_uses_it(shell: Shell) -> None:
    (shell.folder / "spark.py").write_text(SPARK_TASK)
    both = (*FLOW, "--import", "songs=in", "--tasks", "spark.py")
    ended = shell.data(*both)
    assert ended["status"] == "COMPLETED"
    assert shell.data("run", "--resume") == ended

    shell.write_workflow({}, task="on_the_branch")
    code, _, err = shell.run(*FLOW, "--tasks", "spark.py")
    assert code == 1
    assert "task 'on_the_branch' has placement=\"direct\", which needs lakeFS" in err


@pytest.mark.slow
def test_importing_over_an_existing_repository_is_refused(shell: Shell) -> None:
    shell.data(*FIRST)
    code, _, err = shell.run(*FIRST)
    assert code == 1
    assert "exists already" in err
    assert shell.data(*FLOW)["status"] == "COMPLETED"


@pytest.mark.slow
def test_a_folder_that_holds_the_root_is_imported_without_it(shell: Shell) -> None:
    shell.data(*FLOW, "--import", "songs=.")
    assert not [entry for entry in shell.data("ls", "songs", "main") if ".perago/" in entry["path"]]


def _wait_for_try(shell: Shell, count: int) -> None:
    deadline = time.monotonic() + 60
    while not (shell.folder / "tries").exists() or (shell.folder / "tries").read_text() != str(count):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_run_continues_with_resume(shell: Shell) -> None:
    shell.write_workflow({"wait_for": str(shell.folder / "go")})
    process = shell.start(*FIRST)
    _wait_for_try(shell, 1)
    code, _, err = shell.run(*FLOW)
    assert (code, "in use by another" in err) == (1, True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (shell.folder / "go").touch()
    ended = shell.data("run", "--resume")
    assert ended["status"] == "COMPLETED"
    assert [(task["status"], task["retry_count"]) for task in ended["tasks"]] == [
        ("TIMED_OUT", 0),
        ("COMPLETED", 1),
    ]
    workspaces = shell.folder / ".perago" / "workspaces"
    assert not list(workspaces.glob("*/.perago-attempt.json"))
    assert not list((workspaces / "outbox").iterdir())


@pytest.mark.slow
def test_a_run_that_is_over_can_be_resumed_by_id_and_just_tells_its_end(shell: Shell) -> None:
    ended = shell.data(*FIRST)
    assert shell.data("run", "--resume", ended["run"]) == ended
    assert "no run 'other'" in shell.run("run", "other", "--resume")[2]
