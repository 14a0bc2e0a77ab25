"""`perago diff`: list the objects that differ between two refs, or the rows of a table that do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, Root
from perago.cli.row_diff_view import (
    Key,
    LimitBytes,
    Rows,
    compare_rows,
    read_key,
    row_diff_json,
    say_row_diff,
)
from perago.cli.server_choice import open_lake_to_read
from perago.errors import LakeNotFound
from perago.lake.base import Entry, ReadableLake
from perago.runtime.lake_lookup import suggesting_existing_names
from perago.runtime.row_diff import check_engine

From = Annotated[str, typer.Argument(metavar="A", help="A branch, tag or commit.")]
To = Annotated[str, typer.Argument(metavar="B", help="The branch, tag or commit to compare A with.")]
Path = Annotated[
    str | None, typer.Argument(metavar="[PATH]", help="Only this object, or the objects in this folder.")
]

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(
    repository: Repository,
    a: From,
    b: To,
    path: Path = None,
    rows: Rows = False,
    key: Key = "",
    limit_bytes: LimitBytes = None,
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """List the objects that were added, removed or changed from A to B, or the rows of a table."""
    columns = read_key(key, rows=rows, limit_bytes=limit_bytes)
    if rows:
        if path is None:
            raise typer.BadParameter("--rows needs the PATH of a table")
        check_engine()
    with open_lake_to_read(root, remote) as lake:
        for ref in (a, b):
            with suggesting_existing_names(lake, repository, ref):
                lake.commit_at(repository, ref)
        if rows and path is not None:
            [compared] = compare_rows(lake, (repository, a, b), [path], columns, limit_bytes)
            if as_json:
                output.data(row_diff_json(compared))
            else:
                say_row_diff(compared)
            return
        found = list(differences(*(_entries(lake, repository, ref, path or "") for ref in (a, b))))
    if as_json:
        output.data(found)
        return
    say_differences(found)


def say_differences(found: Iterable[dict[str, Any]]) -> None:
    """Print a line for every object that differs."""
    for item in found:
        sign, style = _SIGNS[item["change"]]
        output.say(f"{sign} {item['path']}", style)


def _entries(lake: ReadableLake, repository: str, ref: str, path: str) -> Iterator[Entry]:
    """Yield the object at this path, if there is one, and those in the folder of that name."""
    root = path.rstrip("/")
    if root:
        with suppress(LakeNotFound):
            yield lake.stat(repository, ref, root)
    yield from lake.list(repository, ref, f"{root}/" if root else "")


def differences(one: Iterable[Entry], two: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the differences between two listings that are sorted in the same order."""
    left, right = iter(one), iter(two)
    old, new = next(left, None), next(right, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.path.encode() < new.path.encode()):
            assert old is not None  # noqa: S101 - one of the two is there
            yield _row("removed", old.path, old.size, None)
            old = next(left, None)
        elif old is None or new.path.encode() < old.path.encode():
            yield _row("added", new.path, None, new.size)
            new = next(right, None)
        else:
            if (old.size, old.checksum) != (new.size, new.checksum):
                yield _row("changed", new.path, old.size, new.size)
            old, new = next(left, None), next(right, None)


def _row(change: str, path: str, before: int | None, after: int | None) -> dict[str, Any]:
    return {"path": path, "change": change, "size_before": before, "size_after": after}
