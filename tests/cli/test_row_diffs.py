"""`perago diff --rows` and `perago merge --diff`, on both lakes: what they show, and that it is what gets merged."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perago.cli import app, output
from tests.support.worlds.cli_lake import CommandLake

BEFORE = "id,title,seconds\n1,So What,545\n2,Naima,263\n3,Freddie,1\n"
AFTER = "id,title,seconds\n1,So What,545\n2,Naima,262\n4,Blue,3\n"


@pytest.fixture
def put(lake: CommandLake, tmp_path: Path) -> Callable[..., str]:
    def put(branch: str, **files: str) -> str:
        at = tmp_path / f"in-{len(list(tmp_path.iterdir()))}"
        for path, text in files.items():
            file = at / path.replace("__", "/").replace("_csv", ".csv")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return str(lake.written("put", f"{lake.repository}@{branch}", str(at))["commit"])

    return put


@pytest.fixture
def two(lake: CommandLake, put: Callable[..., str]) -> CommandLake:
    """A lake whose branch dev has changed the table plays/ and a note since it left main."""
    put("main", plays__day_csv=BEFORE, note="1")
    lake.written("branch", lake.repository, "dev")
    put("dev", plays__day_csv=AFTER, note="2")
    return lake


def run(lake: CommandLake, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, *lake.looking])


def test_diff_shows_the_rows_of_a_table(two: CommandLake) -> None:
    done = run(two, "diff", two.repository, "main", "dev", "plays", "--rows", "--key", "id")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1:] == [
        "  rows: 1 added, 1 removed, 1 changed",
        "  changed values: seconds 1",
        "  + id=4, title=Blue, seconds=3",
        "  - id=3, title=Freddie, seconds=1",
        "  ~ id=2: seconds: 263 is now 262",
    ]


def test_diff_prints_json(two: CommandLake) -> None:
    shown = two.run_here("diff", two.repository, "main", "dev", "plays", "--rows", "--key", "id")

    assert shown["rows"] == {"added": 1, "removed": 1, "changed": 1}
    assert shown["compared"] == "files that differ"
    assert shown["formats"] == ["csv", "csv"]
    assert shown["samples"]["changed"] == [
        {"key": {"id": "2"}, "before": {"seconds": "263"}, "after": {"seconds": "262"}}
    ]


def test_diff_of_a_path_lists_only_what_is_there(two: CommandLake) -> None:
    def paths(*path: str) -> list[str]:
        return [one["path"] for one in two.run_here("diff", two.repository, "main", "dev", *path)]

    assert paths() == ["note", "plays/day.csv"]
    assert paths("plays") == paths("plays/") == paths("plays/day.csv") == ["plays/day.csv"]
    assert paths("play") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diff", "songs", "main", "dev", "--rows"), "--rows needs the PATH of a table"),
        (("diff", "songs", "main", "dev", "plays", "--key", "id"), "--key is for rows: add --rows"),
        (("diff", "songs", "main", "dev", "p", "--rows", "--key", "a,a"), "--key a,a names a column twice"),
        (("merge", "songs", "dev", "main", "plays"), "PATH says what to show: add --diff"),
        (("merge", "songs", "dev", "main", "--rows"), "--rows says what to show: add --diff"),
        (("merge", "songs", "dev", "main", "--diff"), "asks before it merges what it has shown"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert said in done.stderr


def test_without_duckdb_the_commands_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)

    for command in (
        ("diff", "songs", "a", "b", "plays", "--rows"),
        ("merge", "songs", "a", "b", "--diff", "--rows"),
    ):
        done = CliRunner().invoke(app, [*command, "--root", "none"])

        assert done.exit_code == 1
        assert "comparing rows needs duckdb, which is not installed: run `" in done.stderr
        assert "perago[diff]==" in done.stderr


def test_merge_shows_its_diff_and_merges_it(two: CommandLake) -> None:
    done = two.write("merge", two.repository, "dev", "main", "--diff", "--rows", "--key", "id", "--yes")

    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "~ note"
    assert lines[1].startswith("plays: 2 files were read")
    assert "  rows: 1 added, 1 removed, 1 changed" in lines
    assert lines[-1].endswith("dev was merged, 2 changed")
    assert run(two, "cat", two.repository, "plays/day.csv").stdout == AFTER


def test_merge_shows_only_the_paths_that_it_is_asked_for(two: CommandLake) -> None:
    merged = two.written("merge", two.repository, "dev", "main", "note", "--diff", "--yes")

    assert merged["changed"] is True
    assert [one["path"] for one in merged["diff"]["objects"]] == ["note"]
    assert merged["diff"]["tables"] == []


def test_merge_says_that_it_changes_nothing_at_a_path(two: CommandLake) -> None:
    done = two.write("merge", two.repository, "dev", "main", "plyas", "--diff", "--rows", "--yes")

    assert done.exit_code == 0, done.output
    assert "plyas: the merge changes nothing there" in done.stderr


def test_merge_of_nothing_shows_nothing(two: CommandLake) -> None:
    two.written("merge", two.repository, "dev", "main")

    merged = two.written("merge", two.repository, "dev", "main", "--diff", "--yes")

    assert (merged["changed"], merged["diff"]) == (False, {"objects": [], "tables": []})


def asked(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], bool]) -> None:
    monkeypatch.setattr("perago.cli.server_choice.refuse_without_terminal", lambda *_, **__: None)
    monkeypatch.setattr(output, "confirm", answer)


def test_merge_asks_after_it_has_shown_its_diff_and_no_leaves_all_as_it_is(
    two: CommandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[str] = []
    asked(monkeypatch, lambda question: bool(questions.append(question)))

    done = run(two, "merge", two.repository, "dev", "main", "--diff")

    assert done.exit_code == 1
    assert questions == [f"Merge dev into {two.repository}/main: 2 changed?"]
    assert done.stdout.splitlines() == ["~ note", "~ plays/day.csv"]
    assert "nothing was changed" in done.stderr
    assert run(two, "cat", two.repository, "note").stdout == "1"


def test_a_target_that_moves_between_the_diff_and_the_answer_is_not_merged_into(
    two: CommandLake, put: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []

    def answer(_: str) -> bool:
        moved.append(put("main", other="somebody else was faster"))
        return True

    asked(monkeypatch, answer)

    done = run(two, "merge", two.repository, "dev", "main", "--diff", "--rows", "--key", "id")

    assert done.exit_code == 1, done.output
    assert "rows: 1 added, 1 removed, 1 changed" in done.stdout
    assert moved[0][:12] in done.stderr
    assert "nothing was merged: run the command again" in done.stderr
    assert json.loads(run(two, "history", two.repository, "--json").stdout)[0]["id"] == moved[0]
