"""The calls that list a view: its roots, and nothing beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeNotFound
from perago.lake.local.lake import LocalLake
from perago.protocol.view import View
from perago.runtime.attempt.listing import list_view, objects_in
from tests.support.faults.ports import Wrapped
from tests.support.worlds.lake_work import Work

OBJECTS = {
    "_lakefs_actions/fence.yaml": b"fence",
    "data/plays": b"a file of the folder's name is elsewhere",
    "data/plays-old/1.csv": b"old",
    "data/plays.txt": b"text",
    "data/songs/": b"",
    "data/songs/1.csv": b"one",
    "data/songs/deep/2.csv": b"two",
    "data/songsters/1.csv": b"no",
    "database": b"no",
}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        yield Work(lake, "songs", tmp_path / "files")


def noting(lake: Any, asked: list[tuple[str, str]]) -> Any:
    """The lake, which notes what it lists and looks for."""

    def intercept(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        asked.append((name, arguments[-1]))
        return call(*arguments)

    return Wrapped(lake, intercept)


@pytest.mark.parametrize(
    ("view", "files"),
    [
        (View("data/", ("plays",)), ["plays"]),
        (View("data/", ("songs",)), ["songs/1.csv", "songs/deep/2.csv"]),
        (View("data/", ("songs/deep", "plays")), ["plays", "songs/deep/2.csv"]),
        (View("data/", ("songs/1.csv",), ("out",)), ["songs/1.csv"]),
        (View("data/", ("song", "play", "none")), []),
        (View("data/", (), ("plays-old",)), ["plays-old/1.csv"]),
        (View("", ("database", "data/songs/deep")), ["data/songs/deep/2.csv", "database"]),
        (View("data/", ("songs", "songs", "songs/deep")), ["songs/1.csv", "songs/deep/2.csv"]),
    ],
)
def test_a_view_holds_its_roots_and_what_is_below_them(work: Work, view: View, files: list[str]) -> None:
    commit = work.commit("main", OBJECTS)

    assert sorted(list_view(work.lake, work.repository, commit, view).files) == files


def test_each_root_is_listed_as_a_folder_and_as_a_file_and_nothing_else_is(work: Work) -> None:
    commit = work.commit("main", OBJECTS)
    asked: list[tuple[str, str]] = []
    lake = noting(work.lake, asked)

    found = [
        entry.path
        for entry in objects_in(lake, work.repository, commit, View("data/", ("songs", "plays")).roots)
    ]

    assert asked == [
        ("list", "data/plays/"),
        ("stat", "data/plays"),
        ("list", "data/songs/"),
        ("stat", "data/songs"),
    ]
    assert found == ["data/plays", "data/songs/", "data/songs/1.csv", "data/songs/deep/2.csv"]


@pytest.mark.parametrize("view", [View("data/"), View("data/", writes=("songs",))])
def test_a_whole_prefix_is_one_listing(work: Work, view: View) -> None:
    commit = work.commit("main", OBJECTS)
    asked: list[tuple[str, str]] = []

    listing = list_view(noting(work.lake, asked), work.repository, commit, view)

    assert asked == [("list", "data/")]
    assert len(listing.files) == 6


def test_actions_and_folder_markers_are_no_files_of_a_view(work: Work) -> None:
    commit = work.commit("main", OBJECTS)

    assert "_lakefs_actions/fence.yaml" not in list_view(work.lake, work.repository, commit, View("")).files
    assert "songs/" not in list_view(work.lake, work.repository, commit, View("data/", ("songs",))).files


def test_a_view_of_a_commit_that_is_not_there_is_an_error_and_not_empty(work: Work) -> None:
    work.commit("main", OBJECTS)

    with pytest.raises(LakeNotFound):
        list_view(work.lake, work.repository, "no-such-ref", View("data/", ("plays",)))
