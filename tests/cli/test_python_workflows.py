"""Workflows in Python on the command line: run, gone on with, checked, registered, and what people get wrong in them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HEAD
from tests.support.processes.command_errors import CommandError, check_reported
from tests.support.processes.commands import Shell

TASKS = """
CONTROLS = TaskControls(retry=RetryPolicy(count=0), timeout=TimeoutPolicy(seconds=3600, response_seconds=600))


class Wanted(BaseModel):
    rows: int
    fail: bool = False


@task(name="clean", owner_email="a@b.c", workspace=WorkspaceSpec(), controls=CONTROLS)
def clean(workspace: Path, params: Params) -> Result:
    (workspace / f"{params.stem}.txt").write_text("clean")
    return Result(rows=7)


@task(name="look", owner_email="a@b.c", workspace=WorkspaceSpec(read_only=True), controls=CONTROLS)
def look(workspace: Path, params: Wanted) -> Result:
    if (Path.cwd() / "fail").exists():
        raise TaskFailed("told to fail")
    return Result(rows=params.rows + len(list(workspace.glob("[!.]*"))))
"""
FLOWS = """
from conductor.client.workflow.task.switch_task import SwitchTask

from perago.workflow import INPUT_WORKSPACE, expression, given, new_workflow, step

plays = new_workflow("plays", owner_email="a@b.c")
first = step(clean, "first", workspace=INPUT_WORKSPACE, params=Params(stem="a"))
second = step(clean, "second", workspace=first.workspace, params=Params(stem="b"))
after = step(look, "after", workspace=first.workspace, params=given(Wanted, rows=first.result.rows))
last = step(look, "last", workspace=second.workspace, params=given(Wanted, rows=after.result.rows))
never = step(look, "never", workspace=second.workspace, params=Wanted(rows=0))
pick = SwitchTask("pick", plays.input("look")).switch_case("yes", [last]).default_case([never])
plays >> first >> [second, after] >> pick
plays.output_parameters({"ref": second.workspace.ref, "rows": last.result.rows})
"""
IMPORTED = "from tasks import *\n"
RUN = ("run", "flows.py:plays", "--tasks", "tasks.py")
GIVEN = ("--import", "songs=data", "--workspace", "songs", "--input", '{"look": "yes"}')
CHECK = ("check", "flows.py", "flows.py:plays")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("x\n")
    return Shell(tmp_path)


def two_modules(shell: Shell) -> None:
    (shell.folder / "tasks.py").write_text(HEAD + TASKS)
    (shell.folder / "flows.py").write_text(IMPORTED + FLOWS)


def one_module(shell: Shell, *, more: str = "", name: str = "plays") -> None:
    flows = FLOWS.replace('new_workflow("plays"', f'new_workflow("{name}"')
    (shell.folder / "flows.py").write_text(HEAD + TASKS + flows + more)


def steps(run: dict[str, Any]) -> dict[str, str]:
    return {one["reference"]: one["status"] for one in run["tasks"]}


@pytest.mark.slow
def test_a_workflow_in_python_runs_with_its_fork_and_its_switch(shell: Shell) -> None:
    two_modules(shell)

    said = shell.run(*RUN, *GIVEN, "--json")

    assert said.code == 0, said.err
    run = json.loads(said.out)
    assert [run["output"]["rows"], len(run["output"]["ref"])] == [7 + 2 + 3, 64]
    assert {"first", "second", "after", "last"} <= steps(run).keys()
    assert "never" not in steps(run)
    assert said.err == f"lake: embedded, {shell.folder / '.perago' / 'lake'}\n"
    assert shell.run("cat", "songs", "b.txt").out == "clean"


@pytest.mark.slow
def test_a_run_resumes_with_the_workflow_it_was_started_with_and_reruns_from_a_step(shell: Shell) -> None:
    two_modules(shell)
    (shell.folder / "fail").touch()
    assert shell.run(*RUN, *GIVEN).code == 1
    (shell.folder / "fail").unlink()
    (shell.folder / "flows.py").write_text("raise SystemExit(3)\n")

    said = shell.run("run", "--resume", "--json")

    assert said.code == 0, said.err
    assert json.loads(said.out)["output"]["rows"] == 7 + 2 + 3
    assert said.err.splitlines()[1].startswith(
        "warning: flows.py:plays has changed since: the run continues with the workflow that"
    )
    again = shell.run("run", "--from", "last")
    assert again.code == 0, again.err
    assert ["last", "COMPLETED"] in [line.split()[:2] for line in again.out.splitlines()]


@pytest.mark.slow
def test_resuming_with_the_same_source_reports_no_changes(shell: Shell) -> None:
    two_modules(shell)
    (shell.folder / "fail").touch()
    assert shell.run(*RUN, *GIVEN).code == 1
    (shell.folder / "fail").unlink()

    said = shell.run("run", "--resume", "--json")

    assert (said.code, said.err) == (0, f"lake: embedded, {shell.folder / '.perago' / 'lake'}\n")


@pytest.mark.slow
def test_tasks_and_workflow_may_share_a_module_and_what_the_client_logs_is_not_shown(shell: Shell) -> None:
    one_module(shell)

    said = shell.run("run", "flows.py:plays", "--tasks", "flows.py", *GIVEN)

    assert said.code == 0, said.err
    assert "set_start_method" not in said.out + said.err


def test_a_workflow_is_checked_and_named_as_it_was_given(shell: Shell) -> None:
    one_module(shell)

    said = shell.run_here(*CHECK)

    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("plays\n  workflow   flows.py:plays\n  steps      8\n")


def test_a_workflow_is_registered_once_however_often_its_module_is_executed(shell: Shell) -> None:
    one_module(shell)
    first = shell.run_here("register", "--local", "flows.py", "flows.py:plays")
    # A list of steps gets a random name from the client whenever the module is executed.
    one_module(shell, more="\n# the same\n")

    again = shell.run_here("register", "--local", "flows.py", "flows.py:plays")

    assert "workflow plays version 1: created" in first.out, first.err
    assert "workflow plays version 1: unchanged" in again.out, again.err


@pytest.fixture
def name(conductor_server: Any) -> Iterator[str]:
    """A name on the real server, for a workflow and its tasks, gone after the test."""
    name = f"test_python_{uuid.uuid4().hex[:12]}"
    yield name
    conductor_server.call("DELETE", f"/metadata/workflow/{name}/1")
    for task in ("clean", "look"):
        conductor_server.call("DELETE", f"/metadata/taskdefs/{name}_{task}")


def test_a_real_conductor_takes_a_workflow_in_python_and_counts_it_as_unchanged_the_next_time(
    shell: Shell, conductor_server: Any, name: str
) -> None:
    shell.environ["CONDUCTOR_SERVER_URL"] = conductor_server.url
    one_module(shell, name=name)
    file = shell.folder / "flows.py"
    file.write_text(file.read_text().replace('@task(name="', f'@task(name="{name}_'))
    created = shell.run_here("register", "--yes", "flows.py", "flows.py:plays")
    file.write_text(file.read_text() + "\n# the same\n")

    again = shell.run_here("register", "--yes", "flows.py", "flows.py:plays")

    assert f"workflow {name} version 1: created" in created.out, created.err
    assert f"workflow {name} version 1: unchanged" in again.out, again.err
    found = conductor_server.call("GET", f"/metadata/workflow/{name}")
    assert [one["taskReferenceName"] for one in found["tasks"]] == [
        "first",
        "forked_1",
        "join_forked_1",
        "pick",
    ]


def told(
    more: str, what: str, remedy: str, *, where: str = "flows.py:", command: tuple[str, ...] = CHECK
) -> Any:
    return more, CommandError(command, where, what, remedy)


FROM_INPUT = 'step(clean, "third", workspace=INPUT_WORKSPACE, params=Params(stem="c"))'
ERRORS = {
    "a misspelt name": told(
        "",
        "flows.py has no 'plyas'",
        "did you mean 'plays'?",
        where="flows.py:plyas",
        command=("check", "flows.py:plyas"),
    ),
    "no name": told(
        "", "name a workflow of the module", "flows.py has plays", command=("run", "flows.py", "--tasks", "x")
    ),
    "a module that is not there": told(
        "", "there is no module 'flwos'", "name its file", where="flwos", command=("check", "flwos:plays")
    ),
    "a file that is not there": told(
        "",
        "there is no such file",
        "did you mean 'flows.py'?",
        where="flwos.py",
        command=("check", "flwos.py:plays"),
    ),
    "another class": told(
        "",
        "this is a Step, not a workflow",
        "flows.py has plays",
        command=("check", "flows.py:first"),
    ),
    "a function": told(
        "def make():\n    return plays\n",
        "this is a function",
        "call it in the module",
        command=("check", "flows.py:make"),
    ),
    "a module without workflows": told("del plays\n", "has no 'plays'", 'new_workflow("plays")'),
    "code that fails": told("1 / 0\n", "cannot be imported: ZeroDivisionError", "correct this line: 1 / 0"),
    "a wrong step of the client's": told("plays >> 3\n", "invalid task", "correct this line: plays >> 3"),
    "a result that is not there": told("first.result.rosw\n", "has no 'rosw'", "did you mean 'rows'?"),
    "a reference in a checked model": told(
        "Wanted(rows=first.result.rows)\n",
        "Wanted: rows cannot be checked before the workflow runs",
        "write given(Wanted, rows=…) in place of Wanted(rows=…)",
    ),
    "a step that starts from a commit that is history": told(
        f"plays >> {FROM_INPUT}\n",
        "step 'third' starts from ${workflow.input.workspace}, but",
        "start it from ${first.output.workspace}",
        where="(flows.py:plays)",
    ),
    "two steps of one name": told(
        "plays >> first\n", "two steps are called 'first'", "rename one of them", where="(flows.py:plays)"
    ),
    "an output without a JSON form": told(
        "plays.output_parameter('x', object())\n", "has no JSON form", "give it text", where="flows.py:plays"
    ),
    "what the client cannot put together": told(
        "from conductor.client.workflow.task.fork_task import ForkTask\n"
        "inner = ForkTask('inner', [[first]], join_on=['first'])\nplays >> ForkTask('outer', [[inner]])\n",
        "the official client cannot make a definition of it: AttributeError",
        "its to_workflow_def(), called in Python, shows where",
    ),
    "a workflow given as tasks": told(
        "",
        "declares no task",
        "its workflow is called only.py:plays",
        where="only.py",
        command=("check", "only.py"),
    ),
    "a workflow given to submit": told(
        "",
        "submit takes the name of a registered workflow",
        "`perago register flows.py:plays --local`, then `perago submit plays --local`",
        command=("submit", "--local", "flows.py:plays"),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_line_with_cause_place_and_remedy(name: str, shell: Shell) -> None:
    more, diagnostic = ERRORS[name]
    one_module(shell, more=more)
    (shell.folder / "only.py").write_text(
        'from perago.workflow import new_workflow\nplays = new_workflow("p")\n'
    )

    check_reported(diagnostic, shell.run_here(*diagnostic.command), shell.folder)
