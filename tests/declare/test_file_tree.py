"""Folders and listings answer alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.declare.file_tree import FolderTree, ListingTree, Tree, literal_folder, may_match_in

FILES = ["a.csv", "raw/a.csv", "raw/b.json", "raw/deep/c.csv", "raw/deep/.hidden", "built/x.parquet/part-0"]

Make = Callable[[Path, Iterable[str]], Tree]


def folder(root: Path, files: Iterable[str]) -> Tree:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return FolderTree(root)


def listing(root: Path, files: Iterable[str]) -> Tree:
    return ListingTree(files)


either = pytest.mark.parametrize("make", [folder, listing])


@either
@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*.csv", {"a.csv"}),
        ("raw/*.csv", {"raw/a.csv"}),
        ("raw/?.*", {"raw/a.csv", "raw/b.json"}),
        ("raw/[ab].csv", {"raw/a.csv"}),
        ("**/*.csv", {"a.csv", "raw/a.csv", "raw/deep/c.csv"}),
        ("raw/**/c.csv", {"raw/deep/c.csv"}),
        ("raw/**", {"raw/a.csv", "raw/b.json", "raw/deep", "raw/deep/c.csv", "raw/deep/.hidden"}),
        ("**/**/c.csv", {"raw/deep/c.csv"}),
        ("built/*.parquet", {"built/x.parquet"}),
        ("raw/deep/*", {"raw/deep/c.csv", "raw/deep/.hidden"}),
        ("raw", {"raw"}),
        ("a.csv/*", set()),
        ("none/**", set()),
        ("raw.", set()),
    ],
)
def test_a_pattern_matches_files_and_folders(
    make: Make, pattern: str, matches: set[str], tmp_path: Path
) -> None:
    found = list(make(tmp_path, FILES).glob(pattern))

    assert sorted(found) == sorted(matches)


@either
def test_files_and_folders_are_told_apart(make: Make, tmp_path: Path) -> None:
    tree = make(tmp_path, FILES)

    assert tree.is_file("raw/a.csv")
    assert not tree.is_dir("raw/a.csv")
    assert tree.is_dir("built/x.parquet")
    assert not tree.is_file("built/x.parquet")
    assert not tree.is_file("nowhere/a.csv")
    assert not tree.is_dir("nowhere")


@either
def test_names_are_sorted_bounded_and_say_what_is_a_folder(make: Make, tmp_path: Path) -> None:
    tree = make(tmp_path, FILES)

    assert tree.names(2) == ["a.csv", "built/"]
    assert tree.names(9, "raw") == ["a.csv", "b.json", "deep/"]


@either
def test_the_marker_is_not_there(make: Make, tmp_path: Path) -> None:
    tree = make(tmp_path, [".perago-attempt.json", "raw/.perago-attempt.json"])

    assert list(tree.glob("**/*")) == ["raw", "raw/.perago-attempt.json"]
    assert not tree.is_file(".perago-attempt.json")


def test_links_that_lead_outside_do_not_count(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "folder").mkdir(parents=True)
    (outside / "folder" / "secret.csv").touch()
    root.mkdir()
    (root / "inside.csv").touch()
    (root / "file.csv").symlink_to(outside / "folder" / "secret.csv")
    (root / "folder").symlink_to(outside / "folder")
    (root / "dangling.csv").symlink_to(root / "nothing")
    (root / "alias.csv").symlink_to(root / "inside.csv")
    (root / "loop").symlink_to(root)
    tree = FolderTree(root)

    assert sorted(tree.glob("**/*.csv")) == ["alias.csv", "inside.csv"]
    assert not tree.is_file("file.csv")
    assert not tree.is_dir("folder")
    assert not tree.is_file("folder/secret.csv")
    assert not tree.is_dir("loop")


def test_a_path_that_is_neither_file_nor_folder_does_not_count(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert list(FolderTree(tmp_path).glob("*")) == []


def test_a_folder_marker_in_a_listing_is_a_folder() -> None:
    tree = ListingTree(["raw/", "built/a"])

    assert tree.is_dir("raw")
    assert list(tree.glob("**/*")) == ["raw", "built", "built/a"]


def test_only_a_folder_has_a_path(tmp_path: Path) -> None:
    assert FolderTree(tmp_path).path == tmp_path
    assert ListingTree([]).path is None


@pytest.mark.parametrize(
    ("pattern", "folder"), [("a/b/*.csv", "a/b"), ("a/*/c", "a"), ("*.csv", ""), ("a/b", "a"), ("**", "")]
)
def test_the_literal_folder_is_what_comes_before_the_first_wildcard(pattern: str, folder: str) -> None:
    assert literal_folder(pattern) == folder


PART = st.sampled_from(["a", "b", "ab", "a.x", "b.x"])
PATTERN = st.lists(st.sampled_from(["a", "*", "**", "a*", "?", "*.x", "[ab]"]), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(PART, min_size=1, max_size=4), max_size=8), PATTERN)
def test_a_folder_and_its_listing_match_alike(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]], pattern: list[str]
) -> None:
    files: list[str] = []
    for path in sorted({"/".join(path) for path in paths}, key=len, reverse=True):
        if not any(longer.startswith(path + "/") for longer in files):
            files.append(path)
    on_disk = folder(tmp_path_factory.mktemp("tree"), files)

    assert set(on_disk.glob("/".join(pattern))) == set(ListingTree(files).glob("/".join(pattern)))


@pytest.mark.parametrize(
    ("pattern", "root", "may"),
    [
        ("plays/a.csv", "plays", True),
        ("plays", "plays/2026", True),
        ("plays-old/a", "plays", False),
        ("play", "plays", False),
        ("pl*/x", "plays", True),
        ("*/2025/x", "plays/2026", False),
        ("**/x", "plays", True),
        ("songs/**", "plays", False),
        ("[ab]/x", "a/b", False),
        ("[ab]/[x-z]", "a/y", True),
    ],
)
def test_a_pattern_may_match_at_below_or_above_a_path_or_it_cannot(
    pattern: str, root: str, may: bool
) -> None:
    assert may_match_in(pattern, root) is may


NAMES = st.sampled_from(["a", "b", "ab"])
PARTS = st.sampled_from(["a", "b", "ab", "*", "a*", "?", "[ab]", "**"])


@given(
    root=st.lists(NAMES, min_size=1, max_size=3),
    below=st.lists(NAMES, max_size=2),
    pattern=st.lists(PARTS, min_size=1, max_size=4),
)
def test_a_pattern_that_matches_something_of_a_view_is_never_said_not_to(
    root: list[str], below: list[str], pattern: list[str]
) -> None:
    tree = ListingTree(["/".join([*root, *below])])

    if any(tree.glob("/".join(pattern))):
        assert may_match_in("/".join(pattern), "/".join(root))
