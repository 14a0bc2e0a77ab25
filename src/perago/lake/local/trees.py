"""The embedded lake's trees: sorted maps from path to object, split into content-addressed nodes.

A tree is a search tree in which the id of a node is the hash of its bytes.  The keys alone decide where a node ends: a
key with a small hash ends its node.  Therefore:

- The same objects always produce the same root, whatever the order of the changes: equal trees have equal ids.
- A change rewrites one leaf and its ancestors, about three nodes, no matter how many objects and folders there are.
  Commits share all other nodes.
- A listing reads, in order, only the leaves that contain its prefix.

Levels are counted from the leaves.  In a leaf, a value is an object's (size, checksum).  In an inner node, it is
(number of objects below, node id), stored under the child's last key.  `str` sorts by code point, which is also the
order of the UTF-8 bytes.
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
"""New values by path.  A value of None deletes the object."""

MEAN_SIZE = 32
MOST_SIZE = 256
_BOUNDARY_BELOW = 2**32 // MEAN_SIZE


@dataclass(frozen=True, slots=True)
class Node:
    """A tree node: sorted keys, and a value for each."""

    level: int
    keys: tuple[str, ...]
    values: tuple[Value, ...]

    def encode(self) -> bytes:
        """Return the node's canonical bytes.  Their hash is the node's id."""
        body = [self.level, self.keys, self.values]
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

    def count(self) -> int:
        """Return the number of objects at or below this node."""
        return len(self.keys) if self.level == 0 else sum(below for below, _ in self.values)


EMPTY = Node(level=0, keys=(), values=())


class Nodes(Protocol):
    """Stores tree nodes by id."""

    def get(self, node: str) -> Node:
        """Return the node with this id."""

    def put(self, node: Node) -> str:
        """Store a node and return its id."""


def node_id(body: bytes) -> str:
    """Return the id of a node with these bytes."""
    return hashlib.sha256(body).hexdigest()


def decode(body: bytes) -> Node:
    """Decode a node from its bytes."""
    level, keys, values = json.loads(body.decode())
    return Node(level, tuple(keys), tuple(map(tuple, values)))


def find(nodes: Nodes, root: str, path: str) -> Value | None:
    """Return the object at a path, or None."""
    _, leaf = _seek(nodes, root, 0, path)
    at = bisect_left(leaf.keys, path)
    return leaf.values[at] if at < len(leaf.keys) and leaf.keys[at] == path else None


def scan(nodes: Nodes, root: str, prefix: str, start: str = "") -> Iterator[tuple[str, Value]]:
    """Yield the objects whose path starts with `prefix` and does not sort before `start`, in order, leaf by leaf."""
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
    """Apply the edits and return the id of the new root.  It equals the old root's if the edits change nothing."""
    old = nodes.get(root)
    for level in range(old.level + 1):
        edits = _rewrite_level(nodes, root, level, edits)
        if not edits:
            return root
    # Treat the old root, which may still be valid, as the only child of a node above it, and edit that node.
    above = _node(old.level + 1, [(old.keys[-1], (old.count(), root))] if old.keys else [])
    row = _apply(above, edits.items())
    level = old.level
    while len(row) > 1:
        level += 1
        closed, rest = _cut(level, row)
        row = [_store(nodes, node) for node in [*closed, rest] if node.keys]
    return _collapse_root(nodes, row[0][1][1]) if row else nodes.put(EMPTY)


def _rewrite_level(nodes: Nodes, root: str, level: int, edits: Edits) -> dict[str, Value | None]:
    """Apply the edits to one level of the tree, and return the edits that this requires on the level above."""
    todo = sorted(edits.items())
    keys = [key for key, _ in todo]
    last = nodes.get(root).keys[-1:]
    old: dict[str, Value] = {}
    new: dict[str, Value] = {}
    done = 0
    while done < len(todo):
        start = keys[done]
        rest = Node(level, (), ())
        # Rewrite from the first affected node until a new node ends where an old one did: the rest is unchanged.
        while True:
            name, node = _seek(nodes, root, level, start)
            final = node.keys[-1:] == last
            upto = len(todo) if final else bisect_right(keys, node.keys[-1], done)
            if node.keys:
                old[node.keys[-1]] = (node.count(), name)
            row = [*zip(rest.keys, rest.values, strict=True), *_apply(node, todo[done:upto])]
            done = upto
            closed, rest = _cut(level, row)
            if final and rest.keys:
                closed.append(rest)
            new.update(_store(nodes, part) for part in closed)
            if final or not rest.keys:
                break
            start = after(node.keys[-1])
    return {key: new.get(key) for key in old.keys() | new.keys() if new.get(key) != old.get(key)}


def _apply(node: Node, edits: Iterable[tuple[str, Value | None]]) -> list[tuple[str, Value]]:
    """Return a node's entries with the edits applied."""
    entries = dict(zip(node.keys, node.values, strict=True))
    for key, value in edits:
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
    return sorted(entries.items())


def _cut(level: int, row: list[tuple[str, Value]]) -> tuple[list[Node], Node]:
    """Split entries into complete nodes.  Also returns an incomplete node with the remaining entries."""
    closed: list[Node] = []
    begin = 0
    for at, (key, _) in enumerate(row, start=1):
        if at - begin == MOST_SIZE or _is_node_boundary(level, key):
            closed.append(_node(level, row[begin:at]))
            begin = at
    return closed, _node(level, row[begin:])


def _is_node_boundary(level: int, key: str) -> bool:
    """Return whether a node ends after this key.

    This depends on a hash of the key and the level.  Without the level, the same keys would end nodes on every level,
    and a level might not be smaller than the one below it.
    """
    toss = hashlib.blake2b(key.encode(), digest_size=4, salt=level.to_bytes(2, "big")).digest()
    return int.from_bytes(toss, "big") < _BOUNDARY_BELOW


def _node(level: int, row: list[tuple[str, Value]]) -> Node:
    return Node(level, tuple(key for key, _ in row), tuple(value for _, value in row))


def _store(nodes: Nodes, node: Node) -> tuple[str, Value]:
    """Store a node and return its entry in the level above."""
    return node.keys[-1], (node.count(), nodes.put(node))


def _collapse_root(nodes: Nodes, root: str) -> str:
    """Return the id of the topmost node that is a leaf or has several children.

    With this node as the root, equal trees have equal roots.
    """
    node = nodes.get(root)
    while node.level > 0 and len(node.keys) == 1:
        root = node.values[0][1]
        node = nodes.get(root)
    return root


def _seek(nodes: Nodes, root: str, level: int, key: str) -> tuple[str, Node]:
    """Return the id and content of the node that contains, or would contain, a key on this level."""
    name, node = root, nodes.get(root)
    while node.level > level:
        name = node.values[min(bisect_left(node.keys, key), len(node.keys) - 1)][1]
        node = nodes.get(name)
    return name, node


def after(key: str) -> str:
    """Return the first key that sorts after this one."""
    return key + "\0"
