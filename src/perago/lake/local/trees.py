"""Trees of the embedded lake: sorted maps from path to object, cut into content-addressed nodes.

A tree is a search tree whose nodes are named by the hash of their bytes.  Where a node ends is decided by the
keys alone (a key whose hash is small ends its node), so

- the same objects give the same root, whatever the order of changes that led there: equal trees have equal ids;
- a change rewrites one leaf and its ancestors, three nodes or so, however many objects there are and whether
  they sit in one folder or in thousands; all other nodes, with all the folders in them, are shared between commits;
- a listing reads the leaves that hold its prefix, in order, and no others.

Levels count from the leaves.  A leaf's value is (size, checksum) of an object; an inner node's is (objects below,
node id) under the last key of the child.  `str` orders by code point, which is the order of the UTF-8 bytes.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

Value = tuple[int, str]
Edits = Mapping[str, Value | None]
"""What changes, by path; None removes."""

MEAN_SIZE = 32
MOST_SIZE = 256
_ENDS_BELOW = 2**32 // MEAN_SIZE


@dataclass(frozen=True, slots=True)
class Node:
    """One node: keys in order, and a value for each."""

    level: int
    keys: tuple[str, ...]
    values: tuple[Value, ...]

    def encode(self) -> bytes:
        """The canonical bytes that name the node."""
        body = [self.level, self.keys, self.values]
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def count(self) -> int:
        """How many objects are at or below this node."""
        return len(self.keys) if self.level == 0 else sum(below for below, _ in self.values)


EMPTY = Node(level=0, keys=(), values=())


class Nodes(Protocol):
    """Where nodes are kept."""

    def get(self, node: str) -> Node:
        """The node of that id."""

    def put(self, node: Node) -> str:
        """Keep a node; its id."""


def node_id(body: bytes) -> str:
    """The name of a node's bytes."""
    return hashlib.sha256(body).hexdigest()


def decode(body: bytes) -> Node:
    """A node from its bytes."""
    level, keys, values = json.loads(body.decode())
    return Node(level, tuple(keys), tuple(map(tuple, values)))


def find(nodes: Nodes, root: str, path: str) -> Value | None:
    """The object at a path."""
    _, leaf = _seek(nodes, root, 0, path)
    at = bisect_left(leaf.keys, path)
    return leaf.values[at] if at < len(leaf.keys) and leaf.keys[at] == path else None


def scan(nodes: Nodes, root: str, prefix: str, start: str = "") -> Iterator[tuple[str, Value]]:
    """Objects whose path starts with `prefix` and is not before `start`, in order, leaf by leaf."""
    last = nodes.get(root).keys[-1:]
    start = max(prefix, start)
    while True:
        _, leaf = _seek(nodes, root, 0, start)
        for at in range(bisect_left(leaf.keys, start), len(leaf.keys)):
            if not leaf.keys[at].startswith(prefix):
                return
            yield leaf.keys[at], leaf.values[at]
        if leaf.keys[-1:] == last:
            return
        start = after(leaf.keys[-1])


def update(nodes: Nodes, root: str, edits: Edits) -> str:
    """The root of the tree with the edits made; the same root if they change nothing."""
    old = nodes.get(root)
    for level in range(old.level + 1):
        edits = _rewrite_level(nodes, root, level, edits)
        if not edits:
            return root
    # What would be the node above the old root, which may still be good, edited like any other.
    above = _node(old.level + 1, [(old.keys[-1], (old.count(), root))] if old.keys else [])
    row = _merged(above, edits.items())
    level = old.level
    while len(row) > 1:
        level += 1
        closed, rest = _cut(level, row)
        row = [_keep(nodes, node) for node in [*closed, rest] if node.keys]
    return _lowest_single(nodes, row[0][1][1]) if row else nodes.put(EMPTY)


def _rewrite_level(nodes: Nodes, root: str, level: int, edits: Edits) -> dict[str, Value | None]:
    """Make the edits in one level; what then changes in the level above."""
    todo = sorted(edits.items())
    keys = [key for key, _ in todo]
    last = nodes.get(root).keys[-1:]
    old: dict[str, Value] = {}
    new: dict[str, Value] = {}
    done = 0
    while done < len(todo):
        start = keys[done]
        rest = Node(level, (), ())
        # From the first touched node on, until a new node ends where an old one did: past that all is as it was.
        while True:
            name, node = _seek(nodes, root, level, start)
            final = node.keys[-1:] == last
            upto = len(todo) if final else bisect_right(keys, node.keys[-1], done)
            if node.keys:
                old[node.keys[-1]] = (node.count(), name)
            row = [*zip(rest.keys, rest.values, strict=True), *_merged(node, todo[done:upto])]
            done = upto
            closed, rest = _cut(level, row)
            if final and rest.keys:
                closed.append(rest)
            new.update(_keep(nodes, part) for part in closed)
            if final or not rest.keys:
                break
            start = after(node.keys[-1])
    return {key: new.get(key) for key in old.keys() | new.keys() if new.get(key) != old.get(key)}


def _merged(node: Node, edits: Iterable[tuple[str, Value | None]]) -> list[tuple[str, Value]]:
    """A node's entries with the edits made."""
    entries = dict(zip(node.keys, node.values, strict=True))
    for key, value in edits:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
    return sorted(entries.items())


def _cut(level: int, row: list[tuple[str, Value]]) -> tuple[list[Node], Node]:
    """Cut entries into whole nodes, and the rest that no key ends."""
    closed: list[Node] = []
    begin = 0
    for at, (key, _) in enumerate(row, start=1):
        if at - begin == MOST_SIZE or _ends(level, key):
            closed.append(_node(level, row[begin:at]))
            begin = at
    return closed, _node(level, row[begin:])


def _ends(level: int, key: str) -> bool:
    """Whether a node ends after this key; another toss on every level, or a level could fail to shrink."""
    toss = hashlib.blake2b(key.encode(), digest_size=4, salt=level.to_bytes(2, "big")).digest()
    return int.from_bytes(toss, "big") < _ENDS_BELOW


def _node(level: int, row: list[tuple[str, Value]]) -> Node:
    return Node(level, tuple(key for key, _ in row), tuple(value for _, value in row))


def _keep(nodes: Nodes, node: Node) -> tuple[str, Value]:
    """Keep a node; its entry in the level above."""
    return node.keys[-1], (node.count(), nodes.put(node))


def _lowest_single(nodes: Nodes, root: str) -> str:
    """The root without inner nodes of one child, so that equal trees have one root."""
    node = nodes.get(root)
    while node.level > 0 and len(node.keys) == 1:
        root = node.values[0][1]
        node = nodes.get(root)
    return root


def _seek(nodes: Nodes, root: str, level: int, key: str) -> tuple[str, Node]:
    """The node of a level that holds or would hold a key, and its id."""
    name, node = root, nodes.get(root)
    while node.level > level:
        name = node.values[min(bisect_left(node.keys, key), len(node.keys) - 1)][1]
        node = nodes.get(name)
    return name, node


def after(key: str) -> str:
    """The first key that sorts after this one."""
    return key + "\0"
