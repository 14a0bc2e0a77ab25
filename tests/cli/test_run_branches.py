"""Commands on run branches, and the marker of a run on an ordinary branch, on both lakes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from perago.backend import Embedded, Real
from perago.cli import app
from perago.lake.base import Lake
from perago.protocol.run_steps import MARKER_PATH, MARKER_TEXT
from perago.settings import load_settings
from perago.testing.lake import put_objects
from tests.support.worlds.cli_lake import CommandLake

RUN = "perago-run-4df9afe8-9f5b-436a-bc8c-b3ab1be69a09-90375f03f023"


@pytest.fixture
def port(lake: CommandLake, tmp_path: Path) -> Iterator[Lake]:
    """The port of the lake, in which a run has been opened."""
    remote = "--remote" in lake.looking
    settings = load_settings(os.environ, root=tmp_path / "root", remote=remote)
    with closing((Real if remote else Embedded)(settings).open_lake()) as opened:
        lake.write("put", lake.repository, str(folder(tmp_path)))
        opened.create_branch(lake.repository, RUN, "main")
        mark(opened, lake.repository, RUN, tmp_path)
        yield opened


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "given"
    made.mkdir(exist_ok=True)
    (made / "a.txt").write_text("a")
    return made


def mark(port: Lake, repository: str, branch: str, tmp_path: Path) -> None:
    put_objects(port, repository, branch, {MARKER_PATH: MARKER_TEXT}, folder=tmp_path / "marker")
    port.commit(repository, branch, "mark", {})


@pytest.mark.parametrize(
    "command",
    [
        ("merge", "REPO", RUN, "main"),
        ("merge", "REPO", "main", RUN),
        ("restore", "REPO", RUN),
        ("restore", "REPO", "main", "--branch", RUN),
        ("put", f"REPO@{RUN}", "given"),
        ("branch", "REPO", RUN, "--delete", "--yes"),
        ("branch", "REPO", RUN, "--remove-marker"),
    ],
    ids=" ".join,
)
def test_a_run_branch_is_refused(lake: CommandLake, port: Lake, command: tuple[str, ...]) -> None:
    refusal = lake.refusal(*(part.replace("REPO", lake.repository) for part in command))
    assert "is the branch of a run, and only the run's own steps write to it" in refusal


def test_a_commit_of_a_run_is_neither_merged_nor_branched_nor_restored(lake: CommandLake, port: Lake) -> None:
    commit = port.head(lake.repository, RUN).id
    for command in (
        ("merge", lake.repository, commit, "main"),
        ("branch", lake.repository, "mine", commit),
        ("restore", lake.repository, commit),
    ):
        assert "belongs to a run, and only the run's own step publishes it, whole" in lake.refusal(*command)
    assert [ref.name for ref in port.branches(lake.repository, "m")] == ["main"]


def test_the_marker_on_an_ordinary_branch_is_found_and_removed(
    lake: CommandLake, port: Lake, tmp_path: Path
) -> None:
    before = port.head(lake.repository, "main").id
    mark(port, lake.repository, "main", tmp_path)
    (folder(tmp_path) / "a.txt").write_text("b")

    refused = lake.write("put", lake.repository, "given")
    removed = lake.written("branch", lake.repository, "main", "--remove-marker")
    again = lake.written("branch", lake.repository, "main", "--remove-marker")

    assert refused.exit_code == 1
    assert "`perago branch REPO BRANCH --remove-marker` removes it" in refused.stderr.splitlines()[-1]
    assert removed["commit"] == port.head(lake.repository, "main").id != before
    assert again["commit"] is None
    assert MARKER_PATH not in [entry.path for entry in port.list(lake.repository, "main", "")]
    assert port.head(lake.repository, "main").metadata["perago.logical_task_key"] == "perago-unmark"
    assert lake.written("put", lake.repository, "given")["changed"]


def test_doctor_names_the_marker(lake: CommandLake, port: Lake, tmp_path: Path) -> None:
    mark(port, lake.repository, "main", tmp_path)
    options = lake.looking if "--root" in lake.looking else ("--remote",)
    doctor = CliRunner().invoke(app, ["doctor", lake.repository, *options])
    assert f"`perago branch {lake.repository} main --remove-marker`" in doctor.output


def test_remove_marker_needs_one_branch(lake: CommandLake) -> None:
    assert "--remove-marker needs the NAME" in lake.write("branch", "songs", "--remove-marker").output
    assert "takes only NAME" in lake.write("branch", "songs", "a", "b", "--remove-marker").output
