"""Pages of the embedded lake's trees: what lies right below a folder, and what differs between two trees.

The rule: a page costs what is on it.  A folder is passed over by going on behind its last possible name, unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from perago.lake.base import Change, Changes, FolderPage, FolderRow
from perago.lake.local.tree_diff import Difference, differences
from perago.lake.local.trees import Nodes, scan
from perago.lake.local.trees import after as first_after

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
