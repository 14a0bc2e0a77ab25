"""`perago diff`: list the changes between two refs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, Root
from perago.cli.server_choice import open_lake_to_read
from perago.lake.base import Entry
from perago.runtime.lake_lookup import suggesting_existing_names

From = Annotated[str, typer.Argument(metavar="A", help="A branch, tag or commit.")]
To = Annotated[str, typer.Argument(metavar="B", help="The branch, tag or commit to compare A with.")]

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(
    repository: Repository, a: From, b: To, root: Root = None, remote: Remote = None, as_json: AsJson = False
) -> None:
    """List the objects that were added, removed or changed from A to B."""
    with open_lake_to_read(root, remote) as lake:
        for ref in (a, b):
            with suggesting_existing_names(lake, repository, ref):
                lake.commit_at(repository, ref)
        found = list(differences(lake.list(repository, a, ""), lake.list(repository, b, "")))
    if as_json:
        output.data(found)
        return
    for item in found:
        sign, style = _SIGNS[item["change"]]
        output.say(f"{sign} {item['path']}", style)


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
