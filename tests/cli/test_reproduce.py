"""`perago reproduce` as a user runs it, after `perago run`: recorded params, given ones, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from tests.support.processes.commands import Shell

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Params(BaseModel):
    text: str

class Done(BaseModel):
    pass

@task(owner_email="tests@example.com", workspace=WorkspaceSpec())
def make(workspace: Path, params: Params) -> Done:
    (workspace / "made.txt").write_text(params.text)
    return Done()
"""
FLOW = """
from perago.workflow import INPUT_WORKSPACE, new_workflow, step
from tasks import Params, make

made = step(make, "made", workspace=INPUT_WORKSPACE, params=Params(text="so what"))
flow = new_workflow("flow", made, owner_email="tests@example.com")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a workflow has run, and whose lake has its publication on main."""
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("in")
    ran = Shell(tmp_path).run(
        "run", "flow.py:flow", "--tasks", "tasks.py", "--import", "songs=data", "--workspace", "songs"
    )
    assert ran.code == 0, ran.err
    return tmp_path


def reproduce(folder: Path, commit: str, *more: str) -> Result:
    where = ["--root", str(folder / ".perago"), "--tasks", str(folder / "tasks.py")]
    return CliRunner().invoke(app, ["reproduce", "songs", commit, *where, *more])


@pytest.mark.slow
def test_a_step_is_made_again_with_the_params_of_its_run(folder: Path) -> None:
    same = reproduce(folder, "main", "--json")
    other = reproduce(folder, "main", "--params", '{"text": "blue"}')

    assert same.exit_code == 0, same.stderr
    found = json.loads(same.stdout)
    assert (found["identical"], found["files"], found["same_params"]) == (True, [], True)
    assert (found["task"], found["then"]["code"]) == ("make", found["now"]["code"])
    assert other.exit_code == 1
    assert other.stdout.splitlines()[0] == "params: not those of the commit"
    assert other.stdout.splitlines()[-1] == "  ~ made.txt"
    assert list((folder / ".perago").glob("reproduce-*")) == []

    shutil.rmtree(folder / ".perago" / "runs")
    lost = reproduce(folder, "main")
    assert lost.exit_code == 1
    assert lost.stderr.splitlines()[-1].startswith("error: the params of step made of workflow ")
    assert lost.stderr.splitlines()[-1].endswith("give --params '{…}'")
    assert reproduce(folder, "main", "--params", '{"text": "so what"}').exit_code == 0
    wrong = reproduce(folder, "main", "--params", '{"texts": "so what"}')
    assert wrong.exit_code == 1
    assert "params.text" in wrong.stderr
