"""`perago blame` on both lakes: the newest commit that changed a path, never the head by default."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.cli import app
from tests.support.worlds.cli_lake import CommandLake

Put = Callable[..., str]


@pytest.fixture
def put(lake: CommandLake, tmp_path: Path) -> Put:
    """Put these files onto a branch, and return the commit."""

    def put(branch: str = "main", *, delete: bool = False, **files: str) -> str:
        at = tmp_path / f"in-{len(list(tmp_path.iterdir()))}"
        for path, text in files.items():
            file = at / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        more = ["--delete"] if delete else []
        return str(lake.written("put", f"{lake.repository}@{branch}", str(at), *more)["commit"])

    return put


def test_the_last_writer_of_a_file_is_not_the_head(lake: CommandLake, put: Put) -> None:
    put(t__a="1", t__ab="1", b="1")
    wrote = put(t__a="2")
    put(t__ab="3", b="3")

    found = lake.run_here("blame", lake.repository, "t/a")

    assert (found["path"], found["kind"], found["commit"]) == ("t/a", "file", wrote)
    assert (found["by"], found["searched"], found["step"]) == ("perago put", 2, None)


def test_a_file_that_was_changed_and_changed_back_was_written_by_the_change_back(
    lake: CommandLake, put: Put
) -> None:
    first = put(a="1")
    put(a="2")
    back = put(a="1")
    put(b="1")

    assert lake.run_here("blame", lake.repository, "a")["commit"] == back
    assert lake.run_here("blame", f"{lake.repository}@{first}", "a")["commit"] == first


def test_a_table_was_written_by_whoever_changed_anything_in_it(lake: CommandLake, put: Put) -> None:
    one = put(t__a="1", t__b="1", t2="1")
    two = put(t__b="2", t__c="2")
    put(t2="3")

    found = lake.run_here("blame", lake.repository, "t", "--files")
    with_slash = lake.run_here("blame", lake.repository, "/t/")

    assert (found["path"], found["kind"], found["commit"]) == ("t/", "folder", two)
    assert with_slash["commit"] == two
    assert {row["path"]: row["commit"] for row in found["files"]} == {"t/a": one, "t/b": two, "t/c": two}


def test_a_deletion_in_a_table_counts_and_a_deleted_file_names_who_deleted_it(
    lake: CommandLake, put: Put
) -> None:
    put(t__a="1", t__b="1")
    gone = put(delete=True, t__b="1")
    put(other="1")

    assert lake.run_here("blame", lake.repository, "t")["commit"] == gone
    deleted = lake.run_here("blame", lake.repository, "t/a")
    assert (deleted["kind"], deleted["commit"]) == ("deleted", gone)
    shown = CliRunner().invoke(app, ["blame", lake.repository, "t/a", *lake.looking]).stdout
    assert shown.startswith(f"t/a was deleted by commit {gone}, ")


def test_a_merge_is_named_with_the_branch_and_leads_to_the_commit_there(lake: CommandLake, put: Put) -> None:
    put(a="1", b="1")
    lake.written("branch", lake.repository, "dev")
    there = put("dev", a="2")
    put("dev", c="2")
    put(b="2")
    merged = lake.written("merge", lake.repository, "dev", "main")["commit"]

    found = lake.run_here("blame", lake.repository, "a")
    assert (found["commit"], found["merged_branch"]) == (merged, "dev")
    shown = CliRunner().invoke(app, ["blame", lake.repository, "a", *lake.looking]).stdout
    command = shlex.split(shown.split("`")[1])[1:]
    pasted = CliRunner().invoke(app, [*command, "--json"])
    assert json.loads(pasted.stdout)["commit"] == there


def test_a_restore_is_named_with_the_commit_that_it_brought_back(lake: CommandLake, put: Put) -> None:
    old = put(a="1")
    put(a="2")
    done = lake.written("restore", lake.repository, old, "a")["commit"]

    found = lake.run_here("blame", lake.repository, "a")

    assert (found["commit"], found["restored_commit"], found["by"]) == (done, old, "perago restore")
    shown = CliRunner().invoke(app, ["blame", lake.repository, "a", *lake.looking]).stdout
    pasted = CliRunner().invoke(app, [*shlex.split(shown.split("`")[1])[1:], "--json"])
    assert json.loads(pasted.stdout)["commit"] == old


def test_a_file_that_a_restore_removed_leads_nowhere_else(lake: CommandLake, put: Put) -> None:
    old = put(a="1")
    put(b="2")
    done = lake.written("restore", lake.repository, old)["commit"]

    shown = CliRunner().invoke(app, ["blame", lake.repository, "b", *lake.looking]).stdout

    assert shown.startswith(f"b was deleted by commit {done}, ")
    assert "`" not in shown


def test_the_search_is_bounded_and_says_so(lake: CommandLake, put: Put) -> None:
    put(a="1")
    put(b="1")
    put(b="2")

    found = lake.run_here("blame", lake.repository, "a", "--limit", "2")
    shown = CliRunner().invoke(app, ["blame", lake.repository, "a", "-n", "2", *lake.looking])

    assert (found["commit"], found["searched"]) == (None, 2)
    assert shown.stdout == "a was not changed in the newest 2 commits: add --limit to search more\n"


def test_a_path_that_never_was_suggests_what_is_there(lake: CommandLake, put: Put) -> None:
    put(plays__one="1")
    for arguments, says in (
        (("palys/one",), "did you mean 'plays/'?"),
        (("plays/two",), "there is no object 'plays/two' at main"),
        (("mian", "plays"), "did you mean 'main'?"),
    ):
        done = CliRunner().invoke(app, ["blame", lake.repository, *arguments, *lake.looking])
        assert done.exit_code == 1
        assert says in done.stderr
    assert CliRunner().invoke(app, ["blame", lake.repository, "a", "b", "c", *lake.looking]).exit_code == 2


def test_names_that_a_shell_would_split_are_quoted_and_a_slash_after_a_file_does_no_harm(
    lake: CommandLake, put: Put
) -> None:
    put(**{"ä b'c": "1"})
    lake.written("branch", lake.repository, "dev")
    there = put("dev", **{"ä b'c": "2"})
    lake.written("merge", lake.repository, "dev", "main")

    shown = CliRunner().invoke(app, ["blame", lake.repository, "ä b'c/", *lake.looking]).stdout
    assert shown.startswith("ä b'c was last written by commit ")
    pasted = CliRunner().invoke(app, [*shlex.split(shown.split("`")[1])[1:], "--json"])
    assert json.loads(pasted.stdout)["commit"] == there


def test_many_commits_are_searched_in_order(lake: CommandLake, put: Put) -> None:
    """More than one batch of commits, which are compared several at a time."""
    wrote = put(a="1")
    for number in range(12):
        put(b=str(number))
    assert lake.run_here("blame", lake.repository, "a")["commit"] == wrote
    assert lake.run_here("blame", lake.repository, "a")["searched"] == 13


def test_upstream_leads_through_merges_and_restores_to_what_was_put(lake: CommandLake, put: Put) -> None:
    first = put(t__a="1", t__b="1")
    lake.written("branch", lake.repository, "dev")
    changed = put("dev", t__a="2")
    merged = lake.written("merge", lake.repository, "dev", "main")["commit"]
    put(t__b="by mistake")
    restored = lake.written("restore", lake.repository, first, "t/b")["commit"]

    found = lake.run_here("blame", lake.repository, "t", "--upstream")

    inputs = {node["commit"]: [one["commit"] for one in node["inputs"]] for node in found["nodes"]}
    assert [one["commit"] for one in found["inputs"]] == [restored, merged]
    assert inputs == {restored: [first], merged: [changed], changed: [], first: []}
    assert {node["kind"] for node in found["nodes"]} == {"restore", "merge", "import"}
    assert (found["path"], found["kind"], found["complete"]) == ("t/", "folder", True)


def test_upstream_says_what_it_was_cut_by_and_excludes_files(lake: CommandLake, put: Put) -> None:
    put(a="1")
    put(b="1")

    found = lake.run_here("blame", lake.repository, "a", "--upstream", "--limit", "1")
    refused = CliRunner().invoke(app, ["blame", lake.repository, "a", "--upstream", "--files", *lake.looking])

    assert (found["complete"], found["nodes"]) == (False, [])
    assert found["cut"] == ["a was not written by the newest 1 commits (--limit)"]
    assert "--files and --upstream exclude each other" in refused.stderr
