"""Changes of a body outside its prefix are refused by name, on every lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from perago.errors import PostGuardrailViolation
from perago.lake.local.lake import LocalLake
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.spark.write_scope import check_write_scope, restore_objects
from tests.support.worlds.lake_work import Work

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


def staged(work: Work, prefix: str, view: View | None = None) -> Workspace:
    """A workspace whose staging branch is `staging`, at the input."""
    commit = work.commit("main", INPUT)
    work.lake.create_branch(work.repository, "staging", commit)
    return Workspace(work.repository, "main", commit, prefix, view)


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
        check_write_scope(work.lake, workspace, "staging")


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
        check_write_scope(work.lake, workspace, "staging")


def test_the_first_few_of_many_are_named(work: Work) -> None:
    workspace = staged(work, "audio/")
    work.put("staging", {f"b/{number}": b"x" for number in range(9)})
    with pytest.raises(PostGuardrailViolation, match="b/0, b/1, b/2, b/3, b/4 and more: outside"):
        check_write_scope(work.lake, workspace, "staging")


@pytest.mark.parametrize("prefix", ["audio/", "audio/clips/", ""])
def test_changes_inside_pass_whatever_they_are_called(work: Work, prefix: str) -> None:
    workspace = staged(work, prefix)
    inside = {f"{prefix}new": b"1", f"{prefix}\U0010ffff/last": b"1", f"{prefix}clips/1": b"2"}
    work.put("staging", inside)
    assert check_write_scope(work.lake, workspace, "staging") == []


def test_markers_of_the_folders_above_become_what_they_were(work: Work) -> None:
    workspace = staged(work, "audio/clips/today/")
    work.lake.delete(work.repository, "staging", ["audio/"])
    work.put("staging", {"audio/clips/": b"", "audio/clips/today/new": b"1"})
    above = check_write_scope(work.lake, workspace, "staging")
    assert above == ["audio/", "audio/clips/"]
    restore_objects(work.lake, workspace, "staging", above)
    assert set(work.paths("staging")) == {*INPUT, "audio/clips/today/new"}


NARROW = View("audio/", reads=("clips", "list"), writes=("out", "sets/a", "one.csv"))


@pytest.mark.parametrize(
    ("put", "named"),
    [
        ("audio/clips/1", "clips/1"),
        ("audio/clips/new", "clips/new"),
        ("audio/list", "list"),
        ("audio/out-old/1", "out-old/1"),
        ("audio/outer", "outer"),
        ("audio/sets/b", "sets/b"),
        ("audio/one.csv.bak", "one.csv.bak"),
        ("audio/zz", "zz"),
        ("audiobook/1", "/audiobook/1"),
        ("a", "/a"),
        ("z/1", "/z/1"),
        ("_lakefs_actions/evil.yaml", "/_lakefs_actions/evil.yaml"),
    ],
)
def test_with_writes_any_change_elsewhere_is_refused_by_name(work: Work, put: str, named: str) -> None:
    workspace = staged(work, "audio/", NARROW)
    good = ["audio/out", "audio/out/1", "audio/sets/a/1", "audio/one.csv", "audio/one.csv/part-0"]
    work.put("staging", {put: b"written", **dict.fromkeys(good, b"written")})
    with pytest.raises(PostGuardrailViolation) as refused:
        check_write_scope(work.lake, workspace, "staging")
    assert f"the task changed {named}, outside what it may change (one.csv, out, sets/a)" in str(
        refused.value
    )


@pytest.mark.parametrize("path", ["audio/clips/1", "audiobook/1", "a"])
def test_with_writes_a_deletion_elsewhere_is_refused_by_name(work: Work, path: str) -> None:
    workspace = staged(work, "audio/", NARROW)
    work.lake.delete(work.repository, "staging", [path])
    with pytest.raises(PostGuardrailViolation, match=f"changed /?{path.removeprefix('audio/')}, outside"):
        check_write_scope(work.lake, workspace, "staging")


def test_with_writes_changes_inside_pass_whatever_they_are_called(work: Work) -> None:
    workspace = staged(work, "audio/", NARROW)
    names = ["new", "deep/new", "\U0010ffff", "\U0010ffff/last", "\U0010ffffz"]
    inside = {f"audio/{root}/{name}": b"1" for root in ("out", "sets/a") for name in names}
    work.put("staging", {**inside, "audio/one.csv": b"1"})
    assert check_write_scope(work.lake, workspace, "staging") == []


def test_only_writes_may_change_if_the_prefix_is_the_whole_repository(work: Work) -> None:
    workspace = staged(work, "", View("", reads=(), writes=("z",)))
    work.put("staging", {"z/1": b"2"})
    assert check_write_scope(work.lake, workspace, "staging") == []
    work.put("staging", {"zz": b"1"})
    with pytest.raises(PostGuardrailViolation, match=r"changed zz, outside what it may change \(z\)"):
        check_write_scope(work.lake, workspace, "staging")


def test_with_writes_the_first_few_of_many_are_named(work: Work) -> None:
    workspace = staged(work, "audio/", NARROW)
    work.put("staging", {f"audio/n{number}": b"x" for number in range(9)})
    with pytest.raises(PostGuardrailViolation, match="changed n0, n1, n2, n3, n4 and more, outside"):
        check_write_scope(work.lake, workspace, "staging")


def test_markers_of_the_folders_above_writes_become_what_they_were(work: Work) -> None:
    workspace = staged(work, "audio/", NARROW)
    work.lake.delete(work.repository, "staging", ["audio/"])
    work.put("staging", {"audio/sets/": b"", "audio/sets/a/": b"", "audio/sets/a/1": b"1"})
    above = check_write_scope(work.lake, workspace, "staging")
    assert above == ["audio/", "audio/sets/"]
    restore_objects(work.lake, workspace, "staging", above)
    assert set(work.paths("staging")) == {*INPUT, "audio/sets/a/", "audio/sets/a/1"}


def test_a_marker_that_is_not_above_what_may_change_is_a_change(work: Work) -> None:
    workspace = staged(work, "audio/", NARROW)
    work.put("staging", {"audio/clips/": b""})
    with pytest.raises(PostGuardrailViolation, match="changed clips/, outside"):
        check_write_scope(work.lake, workspace, "staging")
