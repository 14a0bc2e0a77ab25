"""Views: what a task sees and may change, cut at path segments."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from perago.protocol.view import Roots, View, overlap


def test_without_declared_paths_the_view_is_the_whole_prefix() -> None:
    view = View("events/")

    assert view.whole
    assert view.roots == view.write_roots == ("events/",)
    assert view.covers("events/raw/monday.csv")
    assert not view.covers("eventsof/raw/monday.csv")


def test_writes_alone_limit_what_may_be_changed_and_not_what_is_seen() -> None:
    view = View("events/", writes=("clean",))

    assert view.roots == ("events/",)
    assert view.write_roots == ("events/clean",)


def test_without_writes_a_task_may_change_what_it_reads() -> None:
    view = View("", reads=("plays", "songs"))

    assert view.roots == view.write_roots == ("plays", "songs")


def test_the_view_is_reads_and_writes_together_and_no_root_is_below_another() -> None:
    view = View("a/", reads=("plays/raw", "songs", "plays-old"), writes=("plays",))

    assert view.roots == ("a/plays", "a/plays-old", "a/songs")
    assert view.write_roots == ("a/plays",)


@pytest.mark.parametrize(
    ("path", "seen", "changed"),
    [
        ("plays", True, False),
        ("plays/1.csv", True, False),
        ("plays-old/1.csv", False, False),
        ("sessions/a/b", True, True),
        ("sessions", True, True),
        ("sessionsX", False, False),
        ("other", False, False),
    ],
)
def test_paths_are_cut_at_segments(path: str, seen: bool, changed: bool) -> None:
    view = View("", reads=("plays",), writes=("sessions",))

    assert (view.covers(path), view.may_change(path)) == (seen, changed)


def test_actions_are_in_no_view() -> None:
    assert not View("").covers("_lakefs_actions/fence.yaml")
    assert not View("").may_change("_lakefs_actions/fence.yaml")


@pytest.mark.parametrize(
    ("left", "right", "together"),
    [
        (("plays",), ("plays/raw",), True),
        (("plays/raw",), ("plays",), True),
        (("plays",), ("plays-old", "songs"), False),
        (("",), ("anything",), True),
        (("a/",), ("a/b",), True),
        (("a/b",), ("a/c",), False),
        ((), ("a",), False),
    ],
)
def test_roots_overlap_where_one_is_below_the_other(
    left: tuple[str, ...], right: tuple[str, ...], together: bool
) -> None:
    assert overlap(left, right) is together
    assert overlap(right, left) is together


def test_a_root_that_is_a_folder_does_not_hold_the_object_of_its_name() -> None:
    assert not Roots(["a/"]).hold("a")
    assert Roots(["a/"]).hold("a/")
    assert Roots(["a"]).hold("a")
    assert Roots([""]).hold("a/b")
    assert not Roots([]).hold("a")


def test_a_view_travels_to_another_process() -> None:
    view = View("a/", reads=("plays/raw", "songs"), writes=("plays",))

    there = pickle.loads(pickle.dumps(view))

    assert (there, there.roots, there.write_roots) == (view, view.roots, view.write_roots)
    assert there.may_change("a/plays/raw/x")
    assert replace(there, prefix="b/").roots == ("b/plays", "b/songs")


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count every call, of Python and of C, that is made in the block."""
    count = [0]

    def seen(_frame: object, event: str, _what: object) -> None:
        count[0] += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        yield count
    finally:
        sys.setprofile(None)


def test_an_object_costs_the_same_with_many_roots_as_with_few() -> None:
    paths = [f"days/{day:04}" for day in range(1500)]
    objects = [f"days/{day:04}/part-{part}" for day in range(1500) for part in range(5)]
    view = View("", reads=tuple(paths), writes=tuple(paths))

    with counted_calls() as calls:
        assert all(map(view.covers, objects))
        assert all(map(view.may_change, objects))
        assert not view.may_change("days/1500/part-0")
        assert overlap(view.roots, ["days/1500", "days/1499/part-1"])

    assert calls[0] < 50 * len(objects)


def test_a_view_is_declared_where_either_half_is() -> None:
    assert not View("a/").declared
    assert View("a/", reads=("b",)).declared
    assert View("a/", writes=("b",)).declared


@pytest.mark.parametrize(
    ("path", "sees", "writes"),
    [
        ("plays", True, False),
        ("plays/2026", True, False),
        ("plays/*.csv", True, False),
        ("plays/*/a", True, False),
        ("plays-old", False, False),
        ("pl*", False, False),
        ("*", False, False),
        ("{plays,songs}", False, False),
        ("deep", False, False),
        ("deep/in", True, False),
        ("out", True, True),
        ("out/a/b", True, True),
        ("outer", False, False),
    ],
)
@pytest.mark.parametrize("prefix", ["", "data/"])
def test_a_path_is_seen_whole_or_not_at_all(prefix: str, path: str, sees: bool, writes: bool) -> None:
    view = View(prefix, reads=("plays", "deep/in"), writes=("out",))

    assert (view.sees(path), view.may_write(path)) == (sees, writes)


def test_a_whole_view_sees_every_pattern() -> None:
    assert View("data/").sees("*")
    assert View("").sees("{a,b}/*")
    assert View("").may_write("a")


def test_roots_are_told_as_their_author_wrote_them() -> None:
    view = View("data/", writes=("b", "a/c"))

    assert view.describe_roots(view.write_roots) == "a/c, b"
    assert view.describe_roots(view.roots) == "/data"
    assert View("").describe_roots(View("").roots) == "/"


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("days", True),
        ("days/day=1", True),
        ("days/day=1/part-0", True),
        ("days/day=2", False),
        ("day", False),
    ],
)
def test_a_part_of_a_path_may_be_changed_if_something_below_it_may(path: str, part: bool) -> None:
    assert View("data/", reads=("days",), writes=("days/day=1",)).may_write_in(path) is part
