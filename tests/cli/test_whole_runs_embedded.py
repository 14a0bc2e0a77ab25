"""A whole run with `perago run` on the embedded servers: resumed, not started again in its middle, and blamed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.processes.commands import Shell

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import RetryPolicy, TaskControls, WorkspaceSpec, task

CONTROLS = TaskControls(retry=RetryPolicy(count=0), timeout=600)
WORKSPACE = WorkspaceSpec(unsigned="refuse")


class Nothing(BaseModel):
    pass


@task(owner_email="a@example.com", workspace=WORKSPACE, controls=CONTROLS)
def one(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "one.txt").write_text("one")
    return params


@task(owner_email="a@example.com", workspace=WORKSPACE, controls=CONTROLS)
def two(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "two.txt").write_text("two")
    raise RuntimeError("broken")
"""
FLOWS = """
from perago.workflow import new_workflow, open_run, step
from tasks import Nothing, one, two

run = open_run()
first = step(one, "one", workspace=run.workspace, params=Nothing())
second = step(two, "two", workspace=first.workspace, params=Nothing())
both = new_workflow("both", run, first, second, run.publish(second.workspace), owner_email="a@example.com")
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "given.txt").write_text("given")
    return Shell(tmp_path)


@pytest.mark.slow
def test_a_run_that_failed_is_resumed_on_its_branch_and_published_whole(shell: Shell) -> None:
    command = (
        "run",
        "flows.py:both",
        "--tasks",
        "tasks.py",
        "--import",
        "songs=./data",
        "--workspace",
        "songs",
    )
    failed = shell.run(*command)
    seen = [one["path"] for one in shell.data("ls", "songs")]
    tasks = shell.folder / "tasks.py"
    tasks.write_text(tasks.read_text().replace('    raise RuntimeError("broken")\n', "    return params\n"))
    again = shell.run("run", "--from", "two")
    resumed = shell.run("run", "--resume")

    assert (failed.code, seen) == (1, ["given.txt"])
    assert again.code == 1
    assert "step 'two' belongs to a run that is published whole" in again.err
    assert resumed.code == 0, resumed.err
    assert [one["path"] for one in shell.data("ls", "songs")] == ["given.txt", "one.txt", "two.txt"]

    blamed = shell.run("blame", "songs", "one.txt").out
    found = re.search(r"who wrote it there: `perago (.*)`", blamed)
    assert found is not None, blamed
    assert "by: step one of workflow" in shell.run(*found[1].split()).out

    [run] = json.loads(shell.run("sweep", "songs", "--yes", "--json").out)["leftovers"]
    assert (run["kind"], run["action"]) == ("run", "removed")
