"""`perago plan`, and `--force` and `--full` of `perago run`, as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import Shell
from tests.support.tasks.workflows import simple, workflow
from tests.support.worlds.cli_lake import CommandLake

TASKS = """
import os
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, changes, task

CONTROLS = TaskControls(retry=RetryPolicy(count=0))


class Params(BaseModel):
    text: str = ""


class Result(BaseModel):
    files: int


def declare(name, reads):
    @task(name=name, owner_email="a@example.com", skip_unchanged=True, controls=CONTROLS,
          workspace=WorkspaceSpec(reads=(reads,), writes=(name,)))
    def run(workspace: Path, params: Params) -> Result:
        if (workspace / reads / "bad").exists() and not Path(os.environ["TRIES"]).exists():
            raise TaskFailed("bad data")
        found = changes(workspace, reads)
        (workspace / name).mkdir(exist_ok=True)
        (workspace / name / "made").write_text(" ".join(path.name for path in (workspace / reads).iterdir()))
        print("body of", name, "sees", len(found.added), "added")
        return Result(files=len(found.added))
    return run


clean, count, report = declare("clean", "raw"), declare("count", "clean"), declare("report", "other")
"""


def step(name: str, before: str = "") -> dict[str, Any]:
    given = f"${{{before}.output.workspace}}" if before else "${workflow.input.workspace}"
    return simple(name, name=name, inputParameters={"workspace": given, "params": {}})


FLOW = workflow(step("clean"), step("count", "clean"), step("report", "count"))
PLAN = ("plan", "flow.json", "--tasks", "tasks.py", "--workspace", "songs")
RUN = ("run", *PLAN[1:])


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.environ["TRIES"] = str(tmp_path / "tries")
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    for path in ("raw/a", "raw/b", "other/x"):
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_text("1")
    assert made.run_here("put", "songs", "in", "--create").code == 0
    return made


def put(shell: Shell, path: str, text: str) -> None:
    (shell.folder / "in" / path).write_text(text)
    assert shell.run_here("put", "songs", "in").code == 0


def without_ids(text: str) -> list[str]:
    return re.sub(r"[0-9a-f]{12}", "COMMIT", text).splitlines()


@pytest.mark.slow
def test_a_plan_names_each_step_with_its_reason(shell: Shell) -> None:
    assert shell.run_here(*PLAN).out.splitlines() == [
        "clean   run   nothing published yet",
        "count   run   step clean runs",
        "report  run   nothing published yet",
    ]
    assert shell.run(*RUN).code == 0
    assert without_ids(shell.run_here(*PLAN).out) == [
        "clean   skip  unchanged since COMMIT",
        "count   skip  unchanged since COMMIT",
        "report  skip  unchanged since COMMIT",
    ]
    put(shell, "raw/c", "1")
    planned = shell.run_here(*PLAN, "--force", "report")
    assert (planned.code, planned.out.splitlines()) == (
        0,
        ["clean   run   1 file changed: raw/c", "count   run   step clean runs", "report  run   forced"],
    )
    assert planned.err.splitlines()[-1] == "3 steps: 0 to skip, 3 to run"


@pytest.mark.slow
def test_a_plan_as_json_has_what_its_text_says(shell: Shell) -> None:
    assert shell.run(*RUN).code == 0
    for number in range(5):
        put(shell, f"raw/n{number}", "1")

    found = json.loads(shell.run_here(*PLAN, "--json").out)

    assert (found["workflow"], found["workspace"]["branch"], found["failure"]) == ("flow", "main", None)
    clean, count, report = found["steps"]
    assert clean.pop("commit")
    assert clean == {
        "step": "clean",
        "task": "clean",
        "decision": "run",
        "kind": "files",
        "reason": "5 files changed: raw/n0, raw/n1, raw/n2, …",
        "paths": ["raw/n0", "raw/n1", "raw/n2"],
        "changed": 5,
        "after": None,
    }
    assert (count["decision"], count["kind"], count["after"]) == ("run", "step", "clean")
    assert (report["decision"], report["kind"], report["reason"]) == (
        "skip",
        "unchanged",
        f"unchanged since {report['commit'][:12]}",
    )


def test_a_plan_writes_nothing(shell: Shell) -> None:
    root = shell.folder / ".perago"
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    history = shell.run_here("history", "songs", "--json").out

    assert shell.run_here(*PLAN, "--full").code == 0

    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")}.keys() == before.keys()
    assert not (root / "runs").exists()
    assert not (root / "workspaces").exists()
    assert shell.run_here("history", "songs", "--json").out == history


def test_a_plan_needs_a_lake_and_makes_none(shell: Shell) -> None:
    planned = shell.run_here(*PLAN, "--root", "elsewhere")

    assert planned.code == 1
    assert f"there is no lake below {shell.folder / 'elsewhere'}" in planned.err
    assert not (shell.folder / "elsewhere").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            (*PLAN, "--force", "claen"),
            2,
            "--force claen: the workflow has no such step that runs a task; did you mean 'clean'? `perago plan --help`",
        ),
        (
            (*RUN, "--force", "claen"),
            2,
            "--force claen: the workflow has no such step that runs a task; did you mean",
        ),
        (
            (*PLAN, "--force", "x"),
            2,
            "--force x: the workflow has no such step that runs a task; the steps are clean, count, report; ",
        ),
        ((*PLAN[:2], "--workspace", "songs"), 2, "give the tasks of the workflow (--tasks TARGET)"),
        ((*PLAN, "--input", "nothing.json"), 1, "--input 'nothing.json' is neither a file"),
        (("plan", "flow.json", "--tasks", "tasks.py", "--workspace", "sogns"), 1, "did you mean 'songs'?"),
    ],
    ids=["plan --force", "run --force", "no name like it", "no tasks", "no input", "no repository"],
)
def test_an_error_is_one_line(shell: Shell, arguments: tuple[str, ...], code: int, line: str) -> None:
    said = shell.run_here(*arguments)

    errors = [one for one in said.err.splitlines() if not one.startswith("lake: ")]
    assert (said.code, len(errors)) == (code, 1), said.err
    assert line in errors[0]


def test_a_plan_refuses_what_a_run_would_refuse(shell: Shell) -> None:
    wrong = workflow(step("clean"), step("count", "claen"))
    (shell.folder / "flow.json").write_text(json.dumps(wrong))

    said = shell.run_here(*PLAN)

    assert said.code == 1
    assert "did you mean 'clean'?" in said.err


def bodies(text: str) -> list[str]:
    return re.findall(r"body of (.*)", text)


@pytest.mark.slow
def test_forced_steps_run_and_the_run_says_that_they_were(shell: Shell) -> None:
    assert bodies(shell.run(*RUN).err) == ["clean sees 2 added", "count sees 1 added", "report sees 1 added"]
    assert bodies(shell.run(*RUN).err) == []
    assert "forced" not in shell.run_here("show").out

    assert bodies(shell.run(*RUN, "--force", "count").err) == ["count sees 0 added"]
    assert "forced --force count" in shell.run_here("show").out.splitlines()
    assert bodies(shell.run(*RUN, "--full").err) == [
        "clean sees 2 added",
        "count sees 1 added",
        "report sees 1 added",
    ]
    assert "forced --full" in shell.run_here("show").out.splitlines()
    shown = json.loads(shell.run_here("show", "--json").out)
    assert (shown["full"], shown["forced"]) == (True, [])


@pytest.mark.slow
def test_what_is_forced_is_forced_again_when_the_run_is_resumed(shell: Shell) -> None:
    assert shell.run(*RUN).code == 0
    put(shell, "other/bad", "1")

    failed = shell.run(*RUN, "--full")
    assert failed.code == 1
    assert bodies(failed.err) == ["clean sees 2 added", "count sees 1 added"]
    (shell.folder / "tries").touch()
    resumed = shell.run("run", "--resume")

    assert resumed.code == 0, resumed.err
    assert bodies(resumed.err) == ["report sees 2 added"]
    assert "forced --full" in shell.run_here("show").out.splitlines()


@pytest.mark.slow
def test_more_can_be_forced_when_a_run_is_resumed(shell: Shell) -> None:
    assert shell.run(*RUN).code == 0
    put(shell, "raw/bad", "1")
    assert shell.run(*RUN, "--force", "count").code == 1
    (shell.folder / "tries").touch()

    wrong = shell.run("run", "--resume", "--force", "reprot")
    assert wrong.code == 2
    assert "did you mean 'report'?" in wrong.err
    resumed = shell.run("run", "--resume", "--force", "report")

    assert bodies(resumed.err) == ["clean sees 1 added", "count sees 0 added", "report sees 0 added"]
    assert "forced --force count --force report" in shell.run_here("show").out.splitlines()


@pytest.mark.slow
def test_a_run_that_is_published_whole_is_planned_without_a_commit_in_its_input(shell: Shell) -> None:
    given = {"workspace": "${workflow.input.workspace}", "params": {}}
    last = {"workspace": "${report.output.workspace}", "params": {"origin": "${open.output.origin}"}}
    opened = simple("open", name="perago_open", inputParameters=given)
    publish = simple("publish", name="perago_publish", inputParameters=last)
    steps = (opened, step("clean", "open"), step("count", "clean"), step("report", "count"), publish)
    (shell.folder / "flow.json").write_text(json.dumps(workflow(*steps)))
    assert shell.run(*RUN).code == 0
    branches = shell.run_here("branch", "songs", "--json").out

    assert without_ids(shell.run_here(*PLAN).out) == [
        "open     run   opens the run",
        "clean    skip  unchanged since COMMIT",
        "count    skip  unchanged since COMMIT",
        "report   skip  unchanged since COMMIT",
        "publish  run   publishes nothing: no step of the run changes anything",
    ]
    assert shell.run_here("branch", "songs", "--json").out == branches
    assert bodies(shell.run(*RUN).err) == []


def test_a_plan_on_either_lake(lake: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    (tmp_path / "in/raw").mkdir(parents=True)
    (tmp_path / "in/raw/a").write_text("1")
    lake.written("put", lake.repository, "in")

    found = lake.run_here("plan", "flow.json", "--tasks", "tasks.py", "--workspace", lake.repository)

    assert [(one["decision"], one["kind"]) for one in found["steps"]] == [
        ("run", "missing"),
        ("run", "step"),
        ("run", "missing"),
    ]
