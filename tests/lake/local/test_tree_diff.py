"""Differences of two trees of the embedded lake: complete, in order, and without reading shared nodes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.lake.local.tree_diff import differences
from perago.lake.local.trees import Edits, Value, update
from tests.lake.local.test_trees import Shelf, an_object, built, files


def expected(
    left: dict[str, Value], right: dict[str, Value], prefix: str
) -> list[tuple[str, object, object]]:
    paths = sorted(path for path in left.keys() | right.keys() if path.startswith(prefix))
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]


@pytest.mark.parametrize("folders", [1, 40])
@pytest.mark.parametrize("seed", range(6))
def test_every_difference_is_told_once_and_in_order(seed: int, folders: int) -> None:
    shelf, chance = Shelf(), random.Random(seed)
    left = files(chance.choice([0, 1, 50, 2000]), folders=folders)
    edits: dict[str, Value | None] = {
        f"d{chance.randrange(folders):04}/f{chance.randrange(2500):06}": chance.choice([None, an_object(n)])
        for n in range(chance.choice([0, 1, 30, 700]))
    }
    right = {path: value for path, value in {**left, **edits}.items() if value is not None}
    roots = built(shelf, left), update(shelf, built(shelf, left), edits)
    for prefix in ("", "d0000/", "d0003", "d0000/f0001", "d9", "a"):
        assert list(differences(shelf, *roots, prefix)) == expected(left, right, prefix), prefix
        assert list(differences(shelf, *reversed(roots), prefix)) == expected(right, left, prefix), prefix


paths = st.text(alphabet="ab/-0é😀", min_size=1, max_size=4)
objects = st.dictionaries(paths, st.integers(0, 9).map(an_object), max_size=20)


@given(left=objects, right=objects, prefix=st.text(alphabet="ab/", max_size=2))
@settings(max_examples=100, deadline=None)
def test_any_two_small_trees(left: Edits, right: Edits, prefix: str) -> None:
    shelf = Shelf()
    found = list(differences(shelf, built(shelf, left), built(shelf, right), prefix))
    assert found == expected(dict(left), dict(right), prefix)  # type: ignore[arg-type]


def test_shared_nodes_are_not_read() -> None:
    shelf = Shelf()
    left = built(shelf, files(20_000, folders=200))
    right = update(shelf, left, {"d0100/f010100": an_object(1), "d0100/new": an_object(2)})
    shelf.reads.clear()
    assert [path for path, _, _ in differences(shelf, left, right)] == ["d0100/f010100", "d0100/new"]
    assert len(shelf.reads) <= 12
