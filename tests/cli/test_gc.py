"""`perago gc` as a user has it, on the embedded lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from tests.support.worlds.cli_lake import HIDDEN

TASKS = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Params(BaseModel):
    pass

class Result(BaseModel):
    pass

@task(name="note", owner_email="a@example.com", workspace=WorkspaceSpec(prefix="/"))
def note(workspace: Path, params: Params) -> Result:
    (workspace / "noted").write_text("yes")
    return Result()
"""
FLOW = {
    "name": "flow",
    "version": 1,
    "schemaVersion": 2,
    "tasks": [
        {
            "name": "note",
            "taskReferenceName": "note",
            "type": "SIMPLE",
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
        }
    ],
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    (Path("in") / "file").write_text("first")


def perago(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return done


def data(*arguments: str) -> Any:
    return json.loads(perago(*arguments, "--json").stdout)


def test_what_a_deleted_branch_had_goes_once_it_is_old_enough() -> None:
    perago("put", "songs", "in", "--create")
    perago("branch", "songs", "dev")
    Path("in/big").write_bytes(b"x" * 200_000)
    perago("put", "songs@dev", "in")
    perago("branch", "songs", "dev", "--delete", "--yes")

    young = perago("gc", "--yes")
    plan = perago("gc", "--older-than", "0s", "--dry-run")
    counted = data("gc", "--older-than", "0s", "--dry-run")
    done = perago("gc", "--older-than", "0s", "--yes")
    again = perago("gc", "--older-than", "0s", "--yes")

    assert young.stdout.startswith("nothing to remove; ")
    assert plan.stdout.startswith("3 commits and 1 object would be removed, 195.")
    assert (counted["commits"], counted["objects"]) == (3, 1)
    assert done.stdout.startswith("3 commits and 1 object removed, 195.")
    assert again.stdout.startswith("nothing to remove; ")
    assert perago("cat", "songs", "file").stdout == "first"


@pytest.mark.slow
def test_commits_that_the_record_of_a_run_names_stay_as_long_as_the_record() -> None:
    Path("tasks.py").write_text(TASKS)
    Path("flow.json").write_text(json.dumps(FLOW))
    perago("put", "songs", "in", "--create")
    perago("branch", "songs", "dev")
    run = data("run", "flow.json", "--tasks", "tasks.py", "--workspace", "songs@dev")
    commit = run["tasks"][0]["output"]["workspace"]["ref"]
    perago("branch", "songs", "dev", "--delete", "--yes")

    perago("gc", "--older-than", "0s", "--yes")
    assert perago("cat", f"songs@{commit}", "noted").stdout == "yes"

    perago("runs", "rm", run["run"], "--yes")
    perago("gc", "--older-than", "0s", "--yes")
    perago("cat", f"songs@{commit}", "noted", code=1)
    assert perago("cat", "songs", "file").stdout == "first"


def test_without_a_terminal_it_needs_a_yes_and_a_lake() -> None:
    assert "there is no lake below" in perago("gc", "--yes", code=1).stderr
    perago("put", "songs", "in", "--create")
    assert "add --yes" in perago("gc", code=2).stderr
    assert "lakeFS collects its garbage itself" in perago("gc", "--remote", code=1).stderr
    assert not Path("root").exists()


def test_a_record_that_cannot_be_read_stops_the_collection() -> None:
    perago("put", "songs", "in", "--create")
    Path(".perago/orchestrator.db").write_bytes(b"this is no database, but has some length" * 100)
    says = perago("gc", "--older-than", "0s", "--yes", code=1).stderr
    assert "nothing was removed, because a record below" in says
