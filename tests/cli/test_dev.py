"""`perago dev`, on both lakes: a branch for each Git branch, and the default that `put` and `run` take and print."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perago.cli import app
from perago.runtime.dev_branch import lake_branch_name
from tests.support.worlds.cli_lake import CommandLake

FLOW = {
    "name": "copy",
    "version": 1,
    "schemaVersion": 2,
    "tasks": [
        {
            "name": "copy_note",
            "taskReferenceName": "copy",
            "type": "SIMPLE",
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {}},
        }
    ],
}
TASK = """
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task


class Nothing(BaseModel): ...


@task(name="copy_note", owner_email="a@example.com", workspace=WorkspaceSpec())
def copy_note(workspace: Path, params: Nothing) -> Nothing:
    (workspace / "copy").write_text((workspace / "note").read_text())
    return Nothing()
"""


def git(*arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, *arguments], check=True, capture_output=True)


@pytest.fixture
def project(lake: CommandLake, tmp_path: Path) -> CommandLake:
    """A lake whose main has a note, and a current folder whose Git branch is feature/new-plays."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/note").write_text("main")
    lake.written("put", f"{lake.repository}@main", "in")
    git("init", "-b", "feature/new-plays")
    return lake


def run(lake: CommandLake, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, *lake.looking])


def heads(lake: CommandLake) -> dict[str, str]:
    return {row["branch"]: row["commit"] for row in lake.run_here("branch", lake.repository)}


def test_dev_creates_a_branch_named_after_the_git_branch_and_shows_it(project: CommandLake) -> None:
    made = project.written("dev", project.repository)

    assert (made["branch"], made["git_branch"], made["created"]) == (
        "feature-new-plays",
        "feature/new-plays",
        True,
    )
    assert heads(project)["feature-new-plays"] == heads(project)["main"]
    shown = run(project, "dev").stdout
    assert shown.startswith(f"{project.repository}@feature-new-plays is the default of `run` and `put`")


def test_put_takes_the_default_and_prints_it_and_a_named_branch_wins(
    project: CommandLake, tmp_path: Path
) -> None:
    project.written("dev", project.repository)
    (tmp_path / "in/note").write_text("dev")

    taken = project.write("put", project.repository, "in")
    named = project.written("put", f"{project.repository}@main", "in", "--to", "other")

    assert f"default branch: {project.repository}@feature-new-plays" in taken.stderr
    assert f"{project.repository}/feature-new-plays is at" in taken.stdout
    assert named["branch"] == "main"
    assert run(project, "cat", project.repository, "note").stdout == "main"
    assert run(project, "cat", f"{project.repository}@feature-new-plays", "note").stdout == "dev"


def test_a_second_time_the_branch_stays_and_work_on_it_too(project: CommandLake, tmp_path: Path) -> None:
    project.written("dev", project.repository)
    (tmp_path / "in/note").write_text("dev")
    commit = project.written("put", project.repository, "in")["commit"]

    again = project.written("dev", project.repository)

    assert again["created"] is False
    assert heads(project)["feature-new-plays"] == commit


def test_off_forgets_the_default_and_keeps_the_branch_for_its_git_branch(project: CommandLake) -> None:
    project.written("dev", project.repository)

    off = project.run_here("dev", "--off")

    assert off["branch"] is None
    assert "feature-new-plays" in heads(project)
    put = project.write("put", project.repository, "in")
    assert "default branch" not in put.stderr
    assert f"{project.repository}/main already has all of it" in put.stdout
    assert project.written("dev", project.repository)["created"] is False


def test_a_branch_that_somebody_else_made_is_not_taken(project: CommandLake) -> None:
    project.written("branch", project.repository, "feature-new-plays")

    said = project.refusal("dev", project.repository)

    assert "branch 'feature-new-plays'" in said
    assert "exists, and was not created by `perago dev` here" in said
    assert run(project, "dev").stdout.startswith("no default branch")


def test_two_git_branches_never_share_a_branch(project: CommandLake) -> None:
    project.written("dev", project.repository)
    git("checkout", "-b", "feature-new/plays")

    said = project.refusal("dev", project.repository)

    assert "was created for Git branch 'feature/new-plays'" in said
    assert "`git branch -m NAME`" in said


def test_a_default_of_another_git_branch_is_taken_with_a_warning(project: CommandLake) -> None:
    project.written("dev", project.repository)
    git("checkout", "-b", "other")

    done = project.write("put", project.repository, "in")

    assert "warning: Git is on other now, but the default is for feature/new-plays" in done.stderr
    assert project.written("dev", project.repository)["branch"] == "other"
    assert "warning" not in project.write("put", project.repository, "in").stderr


@pytest.mark.parametrize("branch", ["main", "master"])
def test_the_main_branch_of_git_is_refused(project: CommandLake, branch: str) -> None:
    git("checkout", "-b", branch)

    said = project.refusal("dev", project.repository)

    assert f"Git is on {branch}, which is not a development branch: `git switch -c NAME` makes one" in said


def test_a_detached_head_is_refused(project: CommandLake) -> None:
    git("commit", "--allow-empty", "-m", "first")
    git("checkout", "--detach")

    assert "Git's head is detached" in project.refusal("dev", project.repository)


def test_without_git_or_a_repository_dev_says_so(
    lake: CommandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is in no Git repository" in refused_before_the_lake(lake)
    git("init", "-b", "feature")
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    assert "is in no Git repository" in refused_before_the_lake(lake)


def refused_before_the_lake(lake: CommandLake) -> str:
    done = lake.write("dev", lake.repository)
    assert done.exit_code == 1, done.output
    return str(done.stderr)


@pytest.mark.parametrize("lake", ["embedded"], indirect=True)
def test_run_takes_the_default_for_its_workspace_and_prints_it(project: CommandLake, tmp_path: Path) -> None:
    project.written("dev", project.repository)
    (tmp_path / "flow.json").write_text(json.dumps(FLOW))
    (tmp_path / "tasks.py").write_text(TASK)
    for more in ((), ("--workspace", project.repository)):
        done = project.write("run", "flow.json", "--tasks", "tasks.py", *more)

        assert done.exit_code == 0, done.output
        assert f"default branch: {project.repository}@feature-new-plays" in done.stderr
    assert "copy" in project.files("feature-new-plays")
    assert "copy" not in project.files("main")


def test_a_default_is_for_one_lake(project: CommandLake, tmp_path: Path) -> None:
    project.written("dev", project.repository)
    file = next(tmp_path.rglob("dev.json"))
    file.write_text(
        file.read_text().replace(json.loads(file.read_text())["default"]["lake"], "http://elsewhere")
    )

    assert "default branch" not in project.write("put", project.repository, "in").stderr


def test_a_damaged_file_is_named(project: CommandLake, tmp_path: Path) -> None:
    project.written("dev", project.repository)
    next(tmp_path.rglob("dev.json")).write_text("{")

    assert "dev.json is damaged: remove it" in run(project, "dev").stderr


@pytest.mark.parametrize(
    ("git_name", "name"),
    [("feature/x", "feature-x"), ("a.b c", "a-b-c"), ("ünï_1", None), ("xü", "x-"), ("perago-run-1", None)],
)
def test_other_characters_become_a_dash(git_name: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(Exception, match=r"cannot be one|one of Perago's own|the branch of a run"):
            lake_branch_name(git_name)
    else:
        assert lake_branch_name(git_name) == name
