"""Compares two trees in the embedded lake in path order, and paginates folder listings and differences.

A node's id is the hash of its bytes, so a node that both trees share is skipped without being read.  The cost of
comparing two commits is proportional to their differences, not to their size.  The cost of a page is proportional to
its rows: the content of a subfolder is not read, because the scan continues after its last possible name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perago.lake.base import Change, Changes, FolderPage, FolderRow
from perago.lake.local.trees import Node, Nodes, Value, scan
from perago.lake.local.trees import after as first_after

_AFTER_SLASH = chr(ord("/") + 1)

Difference = tuple[str, Value | None, Value | None]
"""A path, and its values in the left and in the right tree.  A value is None if there is no object."""


def differences(
    nodes: Nodes, left: str, right: str, prefix: str = "", start: str = ""
) -> Iterator[Difference]:
    """Yield the differing objects whose paths start with `prefix` and do not sort before `start`, in order."""
    first = max(prefix, start)
    one, two = _Cursor(nodes, left, first), _Cursor(nodes, right, first)
    while True:
        if one.node is not None and one.node == two.node:
            one.skip()
            two.skip()
        elif one.level > 0 or two.level > 0:
            # Open the node on the higher level, so that equal nodes meet on the same level.
            higher = one if one.level >= two.level else two
            higher.open()
        else:
            path = min((key for key in (one.key, two.key) if key is not None), default=None)
            if path is None or not path.startswith(prefix):
                return
            was, now = one.take(path), two.take(path)
            if was != now:
                yield path, was, now


class _Cursor:
    """A position in one tree: at a node that has not been entered yet, at an object, or at the end.

    Starts at the first key that does not sort before `start`.
    """

    def __init__(self, nodes: Nodes, root: str, start: str) -> None:
        self._nodes = nodes
        self._start = start
        self._open: list[tuple[Node, int]] = []
        self._root: str | None = root

    @property
    def node(self) -> str | None:
        """The id of the current node, or None at an object and at the end."""
        if self._root is not None:
            return self._root
        if not self._open or self._open[-1][0].level == 0:
            return None
        node, at = self._open[-1]
        return node.values[at][1]

    @property
    def level(self) -> int:
        """0 at an object or at the end, otherwise the node's level + 1."""
        if self._root is not None:
            return self._nodes.get(self._root).level + 1
        return self._open[-1][0].level if self._open else 0

    @property
    def key(self) -> str | None:
        """The path of the current object, or None at the end."""
        if not self._open:
            return None
        node, at = self._open[-1]
        return node.keys[at]

    def open(self) -> None:
        """Enter the current node, and skip its entries that end before `start`."""
        name = self.node
        assert name is not None  # noqa: S101 - only called with a level above 0
        node = self._nodes.get(name)
        self._root = None
        # Positioned before the first key: `_step` moves to it.
        self._open.append((node, -1))
        self._step()
        while self._open and self._open[-1][0] is node and node.keys[self._open[-1][1]] < self._start:
            self._step()

    def skip(self) -> None:
        """Skip the current node without reading it."""
        if self._root is not None:
            self._root = None
        else:
            self._step()

    def take(self, path: str) -> Value | None:
        """Return the current object and advance, if it has this path.  Otherwise return None and do not move."""
        if self.key != path:
            return None
        node, at = self._open[-1]
        self._step()
        return node.values[at]

    def _step(self) -> None:
        """Advance to the next entry, closing exhausted nodes."""
        while self._open:
            node, at = self._open.pop()
            if at + 1 < len(node.keys):
                self._open.append((node, at + 1))
                return


def folder_page(nodes: Nodes, tree: str, prefix: str, after: str, limit: int) -> FolderPage:
    """Return at most `limit` direct children of a prefix, starting after the row `after`."""
    rows = list(islice(_rows(nodes, tree, prefix, _next_start(after) if after else ""), limit + 1))
    return FolderPage(rows[:limit], len(rows) > limit)


def change_page(nodes: Nodes, trees: tuple[str, str], prefix: str, after: str, limit: int) -> Changes:
    """Return at most `limit` differences below a prefix, starting after the path `after`."""
    found = differences(nodes, *trees, prefix, first_after(after) if after else "")
    rows = [_change(one) for one in islice(found, limit + 1)]
    return Changes(rows[:limit], len(rows) > limit)


def _rows(nodes: Nodes, tree: str, prefix: str, start: str) -> Iterator[FolderRow]:
    while True:
        for path, (size, _) in scan(nodes, tree, prefix, start):
            name, slash, _ = path[len(prefix) :].partition("/")
            if slash:
                folder = f"{prefix}{name}/"
                yield FolderRow(folder, None)
                start = _next_start(folder)
                break
            yield FolderRow(path, size)
        else:
            return


def _next_start(row: str) -> str:
    """Return the first possible path after a row.  For a folder, this is the first path after all of its content."""
    return row[:-1] + _AFTER_SLASH if row.endswith("/") else first_after(row)


def _change(found: Difference) -> Change:
    path, was, now = found
    if now is None:
        return Change(path, "removed", None)
    return Change(path, "added" if was is None else "changed", now[0])
