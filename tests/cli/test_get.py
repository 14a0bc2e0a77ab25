"""`perago get`, as a command, on both lakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from tests.support.faults.disks import no_file_above
from tests.support.worlds.cli_lake import CommandLake


@pytest.fixture
def songs(lake: CommandLake, tmp_path: Path) -> CommandLake:
    for path, text in {"in/raw/a.csv": "1\n", "in/raw/deep/b.csv": "2\n", "in/notes.txt": "x"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    lake.written("put", lake.repository, "in")
    return lake


def below(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): file.read_text()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def get(songs: CommandLake, *arguments: str) -> dict[str, object]:
    return songs.run_here("get", *arguments)  # type: ignore[no-any-return]


def refusal(songs: CommandLake, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["get", *arguments, *songs.looking])
    assert done.exit_code == 1, done.output
    *before, line = done.stderr.splitlines()
    assert all(one.startswith("lake: ") for one in before)
    return line


def test_a_folder_of_the_branch_is_copied_to_a_new_one(songs: CommandLake, tmp_path: Path) -> None:
    done = get(songs, songs.repository, "raw")

    assert below(tmp_path / "raw") == {"a.csv": "1\n", "deep/b.csv": "2\n"}
    assert (done["folder"], done["files"], done["bytes"]) == ("raw", 2, 4)
    assert done["commit"] == songs.run_here("history", songs.repository)[0]["id"]
    (tmp_path / "usual").mkdir()
    assert (tmp_path / "raw").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_an_older_commit_is_copied_as_it_was(songs: CommandLake, tmp_path: Path) -> None:
    before = songs.run_here("history", songs.repository)[0]["id"]
    (tmp_path / "in/raw/a.csv").write_text("new\n")
    songs.written("put", songs.repository, "in")

    get(songs, f"{songs.repository}@{before}", "-o", "deep/then")
    get(songs, songs.repository, "-o", "now")

    assert below(tmp_path / "deep/then")["raw/a.csv"] == "1\n"
    assert below(tmp_path / "now")["raw/a.csv"] == "new\n"


def test_a_copy_that_was_edited_changes_no_later_copy(songs: CommandLake, tmp_path: Path) -> None:
    get(songs, songs.repository, "raw", "-o", "one")
    with (tmp_path / "one/a.csv").open("a") as file:
        file.write("edited\n")

    get(songs, songs.repository, "raw", "-o", "two")

    assert below(tmp_path / "two") == {"a.csv": "1\n", "deep/b.csv": "2\n"}


def test_existing_files_are_never_overwritten(songs: CommandLake, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    get(songs, songs.repository, "raw", "-o", "mine")
    (tmp_path / "mine/a.csv").write_text("mine")

    line = refusal(songs, songs.repository, "raw", "-o", "mine")

    assert line == (
        "error: mine exists already and is not an empty folder: name another with -o, or remove it first"
    )
    assert (tmp_path / "mine/a.csv").read_text() == "mine"


def test_what_is_not_a_folder_is_told_with_what_to_do(songs: CommandLake, tmp_path: Path) -> None:
    name = songs.repository

    assert f"not a folder: `perago cat {name}@main raw/a.csv > a.csv`" in refusal(songs, name, "raw/a.csv")
    assert "there is nothing below 'row/'" in refusal(songs, name, "row")
    assert "has no branch, tag or commit 'dew'" in refusal(songs, f"{name}@dew")
    assert {path.name for path in tmp_path.iterdir()} <= {"in", "first", "root"}


def test_an_empty_branch_has_nothing_to_copy(songs: CommandLake) -> None:
    first = songs.run_here("history", songs.repository)[-1]["id"]

    assert refusal(songs, f"{songs.repository}@{first}").endswith(
        f"there is nothing at {first} of repository {songs.repository!r}; `perago put` brings files in"
    )


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/large").write_bytes(b"x" * 300_000)
    lake = CommandLake("songs", ("--local",), ("--local",))
    lake.written("put", "songs", "in", "--create")

    with no_file_above(200_000):
        line = refusal(lake, "songs", "-o", "out")

    assert line.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []
    get(lake, "songs", "-o", "out")
    assert (tmp_path / "out/large").stat().st_size == 300_000
