"""`perago put` and `perago branch`, as commands, on both lakes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from tests.support.worlds.cli_lake import HIDDEN, CommandLake


def test_only_what_changed_is_put_in_one_commit_and_what_is_gone_stays_without_delete(
    lake: CommandLake, folder: Callable[..., str]
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
    lake: CommandLake, folder: Callable[..., str]
) -> None:
    lake.written("put", lake.repository, folder(data__a="1", data__old="2", database="3"))
    (Path("in") / "data" / "old").unlink()

    done = lake.written("put", lake.repository, "in/data", "--prefix", "/data/", "--delete")

    assert (done["put"], done["deleted"], done["unchanged"]) == ([], ["data/old"], 1)
    assert {"data/a", "database"} <= set(lake.files())
    assert "data/old" not in lake.files()


def test_a_branch_begins_where_it_is_told_to_and_takes_files_of_its_own(
    lake: CommandLake, folder: Callable[..., str]
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


def test_a_put_is_signed_and_leaves_no_branch(lake: CommandLake, folder: Callable[..., str]) -> None:
    done = lake.written("put", lake.repository, folder(a="1"))

    head = lake.run_here("history", lake.repository)[0]
    assert head["metadata"]["perago.logical_task_key"] == "perago-put", (
        "no retry takes it for an abandoned one"
    )
    assert head["id"] == done["commit"]
    swept = lake.run_here("sweep", lake.repository, "--dry-run")["leftovers"]
    assert swept == []


def test_a_missing_repository_or_branch_is_named_with_the_command_that_creates_it(
    lake: CommandLake, folder: Callable[..., str]
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


def test_a_missing_repository_is_named_with_those_there_are(
    lake: CommandLake, folder: Callable[..., str]
) -> None:
    line = lake.refusal("put", f"{lake.repository}x", folder(a="1"))

    assert line.startswith(f"error: there is no repository '{lake.repository}x'; there are: ")
    assert f"did you mean '{lake.repository}'? `perago put {lake.repository}x in --create" in line


def test_a_file_that_a_lake_cannot_hold_is_refused_in_one_line_and_nothing_is_put(
    lake: CommandLake, tmp_path: Path, folder: Callable[..., str]
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
    assert "give one folder, or only files" in lake.refusal("put", lake.repository, "case-7/x", "case-1")
    os.mkfifo(tmp_path / "pipe")
    assert "it is not a folder" in lake.refusal("put", lake.repository, "pipe")
    assert "there is no such file or folder" in lake.refusal("put", lake.repository, "nowhere")
    assert lake.run_here("history", lake.repository)[0]["id"] == head


def test_a_branch_that_is_there_and_a_name_that_is_perago_s_are_refused(lake: CommandLake) -> None:
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
    lake = CommandLake("songs", (), ())

    assert "--create" in lake.refusal("put", "songs", "in")
    assert not (tmp_path / ".perago").exists()
    assert "has only the branch main" in lake.refusal("put", "songs@dev", "in", "--create")
    assert lake.written("put", "songs", "in", "--create")["changed"]
    assert not lake.written("put", "songs", "in", "--create")["changed"]


def test_single_files_are_put_by_their_names(lake: CommandLake, folder: Callable[..., str]) -> None:
    folder(a="1", sub__b="2")

    done = lake.written("put", lake.repository, "in/a", "in/sub/b", "--to", "raw/2026")
    again = lake.written("put", lake.repository, "in/a", "--prefix", "raw/2026")

    assert sorted(done["put"]) == ["raw/2026/a", "raw/2026/b"]
    assert again["changed"] is False
    assert {"raw/2026/a", "raw/2026/b"} <= set(lake.files())


def test_single_files_that_cannot_be_put_are_refused(lake: CommandLake, folder: Callable[..., str]) -> None:
    folder(a="1", sub__a="2")
    Path("_lakefs_actions").mkdir()

    assert "both would be 'a'" in lake.refusal("put", lake.repository, "in/a", "in/sub/a")
    assert "leave it out, or put a folder" in lake.refusal("put", lake.repository, "in/a", "--delete")
    assert "there is no such file" in lake.refusal("put", lake.repository, "in/a", "in/c")


class TestTable:
    """The embedded lake only: a table needs several repositories, and a put is the same on both lakes."""

    @pytest.fixture
    def songs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLake:
        for name in HIDDEN:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.chdir(tmp_path)
        for name in ("one", "two", "three"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text(name)
        return CommandLake("one", (), ())

    def _table(self, *rows: str) -> str:
        Path("table.csv").write_text("\n".join(("repository,folder,prefix", *rows)) + "\n")
        return "table.csv"

    def test_every_row_is_one_commit_in_its_repository_and_none_the_second_time(
        self, songs: CommandLake
    ) -> None:
        table = self._table("one,one,", "two,two,raw", "one,three,raw")
        first = songs.written("put", "--table", table, "--create")
        second = songs.written("put", "--table", table)

        assert [row["changed"] for row in first["rows"]] == [True, True, True]
        assert [row["row"] for row in first["rows"]] == [1, 2, 3]
        assert [row["changed"] for row in second["rows"]] == [False, False, False]
        assert songs.files() == ["file", "raw/file"]
        assert len(songs.run_here("history", "one")) == 3

    def test_failures_are_grouped_and_the_other_rows_are_put(self, songs: CommandLake) -> None:
        songs.written("put", "one", "one", "--create")
        Path("one/file").write_text("changed")
        table = self._table("one,one,", "nope,two,", "nothere,three,", "one,missing,x")

        done = songs.write("put", "--table", table)

        assert done.exit_code == 1
        assert "[4/4] one/main is at " in done.stdout
        assert "1 of 4 rows put, 0 unchanged, 3 failed" in done.stdout
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert errors[0].startswith("error: rows 2, 3 failed: there is no repository 'nope'")
        assert errors[1].startswith(
            "error: row 4 failed: cannot put missing: there is no such file or folder"
        )
        songs.written("put", "nope", "two", "--create")
        assert songs.write("put", "--table", self._table("one,one,", "nope,two,")).exit_code == 0

    @pytest.mark.parametrize(
        ("rows", "says"),
        [
            (["one,one,", "one,two,"], "rows 1 and 2 of the table put into the same place of one"),
            (["one,,"], "row 1 of the table has no folder"),
            ([",one,"], "row 1 of the table has no repository"),
            (["one,one,../x"], "has a part '..'"),
            ([], "the table has no rows"),
        ],
    )
    def test_an_invalid_table_puts_nothing(self, songs: CommandLake, rows: list[str], says: str) -> None:
        done = songs.write("put", "--table", self._table(*rows), "--create")
        assert done.exit_code == 1
        assert says in done.stderr
        assert not Path(".perago").exists()

    def test_a_wrong_column_or_command_line_is_refused(self, songs: CommandLake) -> None:
        Path("t.csv").write_text("repository,foldr\none,one\n")
        assert "did you mean 'folder'?" in songs.write("put", "--table", "t.csv").stderr
        assert songs.write("put", "one", "one", "--table", "t.csv").exit_code == 2
        assert songs.write("put", "one").exit_code == 2
        assert songs.write("put").exit_code == 2
