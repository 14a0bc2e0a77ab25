"""What a body changed outside its prefix is refused by name, whichever lake holds the branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.errors import PostGuardrailViolation
from perago.lake.local.lake import LocalLake
from perago.protocol.publication import Workspace
from perago.spark.outside import check_outside, reset
from tests.support.lake_work import Work

INPUT = {
    "_lakefs_actions/fence.yaml": b"fence",
    "a": b"1",
    "audio/": b"",
    "audio/clips/1": b"1",
    "audiobook/1": b"1",
    "z/1": b"1",
}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        yield Work(lake, "songs", tmp_path / "files")


def staged(work: Work, prefix: str) -> Workspace:
    """A workspace whose staging branch is `staging`, at the input."""
    commit = work.commit("main", INPUT)
    work.lake.create_branch(work.repository, "staging", commit)
    return Workspace(work.repository, "main", commit, prefix)


@pytest.mark.parametrize(
    ("prefix", "put"),
    [
        ("audio/", "audiobook/2"),
        ("audio/", "a"),
        ("audio/", "audi"),
        ("audio/", "z/1"),
        ("audio/", "audio0"),
        ("audio/", "_lakefs_actions/evil.yaml"),
        ("audio/clips/", "audio/other"),
        ("", "_lakefs_actions/fence.yaml"),
        ("", "_lakefs_actions/evil.yaml"),
    ],
)
def test_a_change_outside_is_refused_by_name(work: Work, prefix: str, put: str) -> None:
    workspace = staged(work, prefix)
    work.put("staging", {put: b"written", f"{prefix}good": b"written"})
    with pytest.raises(
        PostGuardrailViolation, match=rf"changed {put}: outside its prefix /{prefix.rstrip('/')}"
    ):
        check_outside(work.lake, workspace, "staging")


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("audio/", "a"),
        ("audio/", "z/1"),
        ("", "_lakefs_actions/fence.yaml"),
        ("audio/", "_lakefs_actions/fence.yaml"),
    ],
)
def test_a_deletion_outside_is_refused_by_name(work: Work, prefix: str, path: str) -> None:
    workspace = staged(work, prefix)
    work.lake.delete(work.repository, "staging", [path])
    with pytest.raises(PostGuardrailViolation, match=path):
        check_outside(work.lake, workspace, "staging")


def test_of_many_the_first_few_are_named(work: Work) -> None:
    workspace = staged(work, "audio/")
    work.put("staging", {f"b/{number}": b"x" for number in range(9)})
    with pytest.raises(PostGuardrailViolation, match="b/0, b/1, b/2, b/3, b/4 and more: outside"):
        check_outside(work.lake, workspace, "staging")


@pytest.mark.parametrize("prefix", ["audio/", "audio/clips/", ""])
def test_changes_inside_pass_whatever_they_are_called(work: Work, prefix: str) -> None:
    workspace = staged(work, prefix)
    inside = {f"{prefix}new": b"1", f"{prefix}\U0010ffff/last": b"1", f"{prefix}clips/1": b"2"}
    work.put("staging", inside)
    assert check_outside(work.lake, workspace, "staging") == []


def test_markers_of_the_folders_above_become_what_they_were(work: Work) -> None:
    workspace = staged(work, "audio/clips/today/")
    work.lake.delete(work.repository, "staging", ["audio/"])
    work.put("staging", {"audio/clips/": b"", "audio/clips/today/new": b"1"})
    above = check_outside(work.lake, workspace, "staging")
    assert above == ["audio/", "audio/clips/"]
    reset(work.lake, workspace, "staging", above)
    assert set(work.paths("staging")) == {*INPUT, "audio/clips/today/new"}
