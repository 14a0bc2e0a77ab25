"""`perago put` and `perago branch`, as commands, on both lakes."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from perago.cli import app
from perago.settings import LAKEFS_NAMES

HIDDEN = (*LAKEFS_NAMES, "CONDUCTOR_SERVER_URL", "PERAGO_ROOT")


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake as the command line sees it: a repository, and the options of commands that write and that look."""

    repository: str
    writing: tuple[str, ...]
    looking: tuple[str, ...]

    def write(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *self.writing])

    def written(self, *arguments: str) -> Any:
        done = self.write(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def run_here(self, *arguments: str) -> Any:
        done = CliRunner().invoke(app, [*arguments, "--json", *self.looking])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def files(self, ref: str = "main") -> list[str]:
        return [entry["path"] for entry in self.run_here("ls", f"{self.repository}@{ref}")]

    def refusal(self, *arguments: str) -> str:
        done = self.write(*arguments)
        assert done.exit_code == 1, done.output
        assert done.stderr.splitlines()[:-1] == [
            line for line in done.stderr.splitlines() if "lake: " in line
        ]
        return done.stderr.splitlines()[-1]


@pytest.fixture(params=["embedded", pytest.param("lakefs", marks=pytest.mark.servers)])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.chdir(tmp_path)
    if request.param == "lakefs":
        name = request.getfixturevalue("lakefs_repository")
        monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
        return Lake(name, ("--remote", "--yes"), ("--remote",))
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "readme").write_text("first")
    root = ("--root", str(tmp_path / "root"))
    made = Lake("songs", root, root)
    assert made.write("put", "songs", "first", "--create").exit_code == 0
    assert made.written("put", "songs", "first")["changed"] is False
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., str]:
    def make(**files: str) -> str:
        for path, text in files.items():
            file = tmp_path / "in" / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (tmp_path / "in").mkdir(exist_ok=True)
        return "in"

    return make


def test_only_what_changed_is_put_in_one_commit_and_what_is_gone_stays_without_delete(
    lake: Lake, folder: Callable[..., str]
) -> None:
    before = lake.run_here("history", lake.repository)
    first = lake.written("put", lake.repository, folder(data__a="1", data__b="2"), "--message", "two files")
    (Path("in") / "data" / "b").unlink()
    second = lake.written("put", lake.repository, folder(data__a="one", data__c="3"))
    third = lake.written("put", lake.repository, "in")

    commits = lake.run_here("history", lake.repository)
    assert (sorted(first["put"]), first["deleted"]) == (["data/a", "data/b"], [])
    assert (sorted(second["put"]), second["deleted"], second["unchanged"]) == (["data/a", "data/c"], [], 0)
    assert (third["changed"], third["commit"], third["unchanged"]) == (False, second["commit"], 2)
    assert [commit["id"] for commit in commits[:2]] == [second["commit"], first["commit"]]
    assert commits[1]["message"] == "two files"
    assert len(commits) == len(before) + 2, "one commit each, and none where nothing changed"
    assert {"data/a", "data/b", "data/c"} <= set(lake.files())


def test_delete_makes_the_prefix_what_the_folder_is_and_touches_nothing_beside_it(
    lake: Lake, folder: Callable[..., str]
) -> None:
    lake.written("put", lake.repository, folder(data__a="1", data__old="2", database="3"))
    (Path("in") / "data" / "old").unlink()

    done = lake.written("put", lake.repository, "in/data", "--prefix", "/data/", "--delete")

    assert (done["put"], done["deleted"], done["unchanged"]) == ([], ["data/old"], 1)
    assert {"data/a", "database"} <= set(lake.files())
    assert "data/old" not in lake.files()


def test_a_branch_begins_where_it_is_told_to_and_takes_files_of_its_own(
    lake: Lake, folder: Callable[..., str]
) -> None:
    first = lake.written("put", lake.repository, folder(a="1"))["commit"]
    second = lake.written("put", lake.repository, folder(a="2"))["commit"]

    assert lake.written("branch", lake.repository, "now")["commit"] == second
    assert lake.written("branch", lake.repository, "then", first)["commit"] == first
    assert lake.written("branch", lake.repository, "again", "then")["commit"] == first
    put = lake.written("put", f"{lake.repository}@then", folder(only_then="3"))

    assert lake.run_here("history", lake.repository, "then")[0]["id"] == put["commit"]
    assert lake.run_here("history", f"{lake.repository}@then")[0]["parents"] == [first]
    assert "only_then" in lake.files("then")
    assert lake.run_here("history", lake.repository)[0]["id"] == second
    assert "only_then" not in lake.files()


def test_a_put_is_signed_and_leaves_no_branch(lake: Lake, folder: Callable[..., str]) -> None:
    done = lake.written("put", lake.repository, folder(a="1"))

    head = lake.run_here("history", lake.repository)[0]
    assert head["metadata"]["perago.logical_task_key"] == "perago-put", (
        "no retry takes it for an abandoned one"
    )
    assert head["id"] == done["commit"]
    swept = lake.run_here("sweep", lake.repository, "--dry-run")["leftovers"]
    assert swept == []


def test_a_missing_repository_or_branch_is_named_with_the_command_that_creates_it(
    lake: Lake, folder: Callable[..., str]
) -> None:
    folder(a="1")

    no_branch = lake.refusal("put", f"{lake.repository}@dev", "in")
    lake.written("branch", lake.repository, "de")
    nearly = lake.refusal("branch", lake.repository, "x", "dev")

    assert f"repository {lake.repository!r} has no branch, tag or commit 'dev'; there are: " in no_branch
    assert f"`perago branch {lake.repository} dev" in no_branch
    assert "did you mean 'de'?" in nearly
    _, command, _ = no_branch.split("`")
    pasted = CliRunner().invoke(
        app, [*shlex.split(command)[1:], *(["--yes"] if "--yes" in lake.writing else [])]
    )
    assert pasted.exit_code == 0, pasted.output
    assert lake.written("put", f"{lake.repository}@dev", "in")["changed"]


def test_a_missing_repository_is_named_with_those_there_are(lake: Lake, folder: Callable[..., str]) -> None:
    line = lake.refusal("put", f"{lake.repository}x", folder(a="1"))

    assert line.startswith(f"error: there is no repository '{lake.repository}x'; there are: ")
    assert f"did you mean '{lake.repository}'? `perago put {lake.repository}x in --create" in line


def test_a_file_that_a_lake_cannot_hold_is_refused_in_one_line_and_nothing_is_put(
    lake: Lake, tmp_path: Path, folder: Callable[..., str]
) -> None:
    lake.written("put", lake.repository, folder(data__a="1"))
    head = lake.run_here("history", lake.repository)[0]["id"]
    cases: list[tuple[Callable[[Path], object], tuple[str, ...], str]] = [
        (lambda at: None, (), "it holds no files"),
        (lambda at: None, ("--delete",), "it holds no files"),
        (lambda at: (at / "link").symlink_to("x"), (), "does not support symlinks: link"),
        (lambda at: os.mkfifo(at / "pipe"), (), "does not support sockets, pipes and devices"),
        (lambda at: Path(os.fsdecode(os.fsencode(at) + b"/\xff")).touch(), (), "not valid UTF-8: rename"),
        (lambda at: (at / ".perago-attempt.json").touch(), (), "Perago's own name"),
        (lambda at: (at / "data").touch(), (), "it is a folder on 'main', which holds 'data/a'"),
        (lambda at: (at / "x").touch(), ("--prefix", "data/a"), "'data/a' is a file on 'main'"),
        (lambda at: (at / "x").touch(), ("--prefix", "data/a/b"), "'data/a' is a file on 'main'"),
        (lambda at: (at / "x").touch(), ("--prefix", "a/../b"), "has a part '..'"),
        (lambda at: (at / "x").touch(), ("--prefix", "_lakefs_actions"), "lakeFS keeps its actions"),
    ]
    for number, (make, options, text) in enumerate(cases):
        at = tmp_path / f"case-{number}"
        at.mkdir()
        make(at)
        assert text in lake.refusal("put", lake.repository, at.name, *options)
    actions = tmp_path / "actions" / "_lakefs_actions"
    actions.mkdir(parents=True)
    (actions / "mine.yaml").touch()
    assert "is among lakeFS's actions" in lake.refusal("put", lake.repository, "actions")
    assert "it is not a folder" in lake.refusal("put", lake.repository, "case-7/x")
    assert "there is no such folder" in lake.refusal("put", lake.repository, "nowhere")
    assert lake.run_here("history", lake.repository)[0]["id"] == head


def test_a_branch_that_is_there_and_a_name_that_is_perago_s_are_refused(lake: Lake) -> None:
    same_lake = " ".join(lake.looking)
    told = lake.refusal("branch", lake.repository, "main")
    assert f"`perago history {lake.repository} main {same_lake}`" in told
    assert "perago-* is reserved for Perago" in lake.refusal("branch", lake.repository, "perago-x")
    assert lake.refusal("branch", lake.repository, "a.b").startswith("error: ")


def test_create_makes_a_repository_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    lake = Lake("songs", (), ())

    assert "--create" in lake.refusal("put", "songs", "in")
    assert not (tmp_path / ".perago").exists()
    assert "has only the branch main" in lake.refusal("put", "songs@dev", "in", "--create")
    assert lake.written("put", "songs", "in", "--create")["changed"]
    assert not lake.written("put", "songs", "in", "--create")["changed"]
