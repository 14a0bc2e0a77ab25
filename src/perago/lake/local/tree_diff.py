"""What two trees of the embedded lake do not share, in the order of paths.

Nodes are named by their bytes, so a node that both trees have is passed over unread: comparing two commits costs what
differs between them, not what they hold.

Pages of the embedded lake's trees: what lies right below a folder, and what differs between two trees.

The rule: a page costs what is on it.  A folder is passed over by going on behind its last possible name, unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perago.lake.base import Change, Changes, FolderPage, FolderRow
from perago.lake.local.trees import Node, Nodes, Value, scan
from perago.lake.local.trees import after as first_after

Difference = tuple[str, Value | None, Value | None]
"""A path, and what is there on the left and on the right; None where nothing is."""


def differences(
    nodes: Nodes, left: str, right: str, prefix: str = "", start: str = ""
) -> Iterator[Difference]:
    """The paths that start with `prefix`, are not before `start`, and whose objects differ."""
    first = max(prefix, start)
    one, two = _Cursor(nodes, left, first), _Cursor(nodes, right, first)
    while True:
        if one.node is not None and one.node == two.node:
            one.pass_over()
            two.pass_over()
        elif one.level > 0 or two.level > 0:
            # The higher one is opened, so that equal nodes meet on one level.
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
    """One tree, read from the first entry that may start with a prefix: a node that is not open yet, or an object."""

    def __init__(self, nodes: Nodes, root: str, start: str) -> None:
        self._nodes = nodes
        self._start = start
        self._open: list[tuple[Node, int]] = []
        self._root: str | None = root

    @property
    def node(self) -> str | None:
        """The id of the node it stands before, or None before an object and at the end."""
        if self._root is not None:
            return self._root
        if not self._open or self._open[-1][0].level == 0:
            return None
        node, at = self._open[-1]
        return node.values[at][1]

    @property
    def level(self) -> int:
        """0 before an object and at the end; before a node, its level and one more."""
        if self._root is not None:
            return self._nodes.get(self._root).level + 1
        return self._open[-1][0].level if self._open else 0

    @property
    def key(self) -> str | None:
        """The path of the object it stands before; None at the end."""
        if not self._open:
            return None
        node, at = self._open[-1]
        return node.keys[at]

    def open(self) -> None:
        """Go into the node it stands before; what ends before the start is left out."""
        name = self.node
        assert name is not None  # noqa: S101 - only called with a level above 0
        node = self._nodes.get(name)
        self._root = None
        # One below the first key that may count, and one is added by the step to it.
        self._open.append((node, -1))
        self._step()
        while self._open and self._open[-1][0] is node and node.keys[self._open[-1][1]] < self._start:
            self._step()

    def pass_over(self) -> None:
        """Leave the node that it stands before unread."""
        if self._root is not None:
            self._root = None
        else:
            self._step()

    def take(self, path: str) -> Value | None:
        """The object of that path, if it stands before it, and go on; else None."""
        if self.key != path:
            return None
        node, at = self._open[-1]
        self._step()
        return node.values[at]

    def _step(self) -> None:
        """Go to the next entry, out of every node that has none left."""
        while self._open:
            node, at = self._open.pop()
            if at + 1 < len(node.keys):
                self._open.append((node, at + 1))
                return


_AFTER_SLASH = chr(ord("/") + 1)


def folder_page(nodes: Nodes, tree: str, prefix: str, after: str, limit: int) -> FolderPage:
    """At most `limit` rows below a prefix, after a row."""
    rows = list(islice(_rows(nodes, tree, prefix, _past(after) if after else ""), limit + 1))
    return FolderPage(rows[:limit], len(rows) > limit)


def change_page(nodes: Nodes, trees: tuple[str, str], prefix: str, after: str, limit: int) -> Changes:
    """At most `limit` differences below a prefix, after a path."""
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
                start = _past(folder)
                break
            yield FolderRow(path, size)
        else:
            return


def _past(row: str) -> str:
    """The first path that may come after a row; after a folder, after all that is in it."""
    return row[:-1] + _AFTER_SLASH if row.endswith("/") else first_after(row)


def _change(found: Difference) -> Change:
    path, was, now = found
    if now is None:
        return Change(path, "removed", None)
    return Change(path, "added" if was is None else "changed", now[0])
