"""The embedded lake's trees: equal objects give one root, changes are small, listings read only their part."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perago.lake.local.trees import EMPTY, Edits, Node, Value, find, node_id, scan, update


@dataclass
class Shelf:
    """Nodes in memory, counting what is read and what is new."""

    bodies: dict[str, Node] = field(default_factory=dict)
    reads: set[str] = field(default_factory=set)

    def get(self, node: str) -> Node:
        self.reads.add(node)
        return self.bodies[node]

    def put(self, node: Node) -> str:
        name = node_id(node.encode())
        self.bodies[name] = node
        return name


def an_object(number: int) -> Value:
    return number, f"{number:064x}"


def files(count: int, *, folders: int) -> dict[str, Value]:
    return {f"d{n % folders:04}/f{n:06}": an_object(n) for n in range(count)}


def built(shelf: Shelf, objects: Edits) -> str:
    return update(shelf, shelf.put(EMPTY), objects)


paths = st.text(alphabet="ab/-0é😀", min_size=1, max_size=4)
edit_steps = st.lists(
    st.dictionaries(paths, st.none() | st.integers(0, 9).map(an_object), max_size=12), max_size=8
)


@pytest.mark.slow
@given(edit_steps)
@settings(max_examples=60, deadline=None)
def test_any_order_of_edits_ends_in_the_root_of_the_same_objects_built_at_once(steps: list[Edits]) -> None:
    shelf = Shelf()
    root, objects = shelf.put(EMPTY), dict[str, Value]()
    for edits in steps:
        root = update(shelf, root, edits)
        objects = {path: value for path, value in (objects | dict(edits)).items() if value is not None}
    assert root == built(Shelf(), objects)
    assert list(scan(shelf, root, "")) == sorted(objects.items(), key=lambda item: item[0].encode())


@pytest.mark.slow
def test_large_trees_keep_one_root_per_content_through_random_edits() -> None:
    toss = random.Random(7)
    shelf = Shelf()
    objects = files(5000, folders=7)
    root = built(shelf, objects)
    for _ in range(12):
        names = list(objects)
        edits: dict[str, Value | None] = dict.fromkeys(toss.sample(names, toss.choice([1, 40, 300])))
        edits |= {
            f"d{toss.randrange(9):04}/n{toss.randrange(10**6)}": an_object(toss.randrange(99))
            for _ in range(50)
        }
        edits[toss.choice(names)] = an_object(toss.randrange(10**9))
        root = update(shelf, root, edits)
        objects = {path: value for path, value in (objects | edits).items() if value is not None}
        assert root == built(Shelf(), objects)
    assert dict(scan(shelf, root, "")) == objects


@pytest.mark.slow
@given(st.permutations([f"by-{writer}/{number}" for writer in range(8) for number in range(10)]))
@settings(max_examples=8, deadline=None)
def test_objects_that_come_and_go_one_by_one_in_any_order_are_all_accounted_for(paths: list[str]) -> None:
    shelf = Shelf()
    root, objects = shelf.put(EMPTY), dict[str, Value]()
    for number, path in enumerate(paths):
        objects[path] = an_object(number)
        root = update(shelf, root, {path: objects[path]})
        assert root == built(Shelf(), objects)
    assert dict(scan(shelf, root, "")) == objects
    for path in sorted(paths, key=lambda path: path[::-1]):
        del objects[path]
        root = update(shelf, root, {path: None})
        assert root == built(Shelf(), objects)


def test_removing_everything_gives_the_empty_root() -> None:
    shelf = Shelf()
    objects = files(3000, folders=3)
    assert update(shelf, built(shelf, objects), dict.fromkeys(objects)) == node_id(EMPTY.encode())


def test_shrinking_to_a_few_objects_gives_the_root_of_those_few() -> None:
    shelf = Shelf()
    objects = files(3000, folders=3)
    few = dict(list(objects.items())[:2])
    root = update(shelf, built(shelf, objects), {path: few.get(path) for path in objects})
    assert root == built(Shelf(), few)


def test_edits_that_change_nothing_give_the_root_back() -> None:
    shelf = Shelf()
    objects = files(500, folders=5)
    root = built(shelf, objects)
    same = {path: objects[path] for path in list(objects)[:20]}
    assert update(shelf, root, {**same, "not/there": None}) == root


def test_one_change_adds_a_handful_of_nodes_flat_or_spread() -> None:
    for count, folders in ((1000, 1), (1000, 100), (20_000, 1), (20_000, 1000)):
        shelf = Shelf()
        objects = files(count, folders=folders)
        root = built(shelf, objects)
        before = set(shelf.bodies)
        changed = sorted(objects)[count // 2]
        update(shelf, root, {changed: an_object(count + 1)})
        assert len(shelf.bodies.keys() - before) <= 5


def test_a_listing_by_prefix_reads_only_the_nodes_on_its_way() -> None:
    shelf = Shelf()
    root = built(shelf, files(20_000, folders=1000))
    shelf.reads.clear()
    listed = list(scan(shelf, root, "d0500/"))
    assert [path for path, _ in listed] == [f"d0500/f{n:06}" for n in range(500, 20_000, 1000)]
    assert len(shelf.reads) < 20


def test_a_listing_streams_leaf_by_leaf() -> None:
    shelf = Shelf()
    root = built(shelf, files(20_000, folders=10))
    shelf.reads.clear()
    assert next(scan(shelf, root, ""))[0] == "d0000/f000000"
    assert len(shelf.reads) < 8


def test_find_gives_the_object_at_exactly_that_path() -> None:
    shelf = Shelf()
    root = built(shelf, {"a": an_object(1), "a/b": an_object(2), "a-b": an_object(3)})
    assert find(shelf, root, "a") == an_object(1)
    assert find(shelf, root, "a/b") == an_object(2)
    assert find(shelf, root, "a/") is None
    assert find(shelf, root, "z") is None
