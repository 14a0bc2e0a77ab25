"""The page about where a file or a folder comes from: a graph, with the result at the top and the imports at the bottom.

It is drawn like a run's steps.  A commit is a box with its inputs below it, side by side if there are several.  Where it
comes up again, a small box leads to the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from starlette.requests import Request

from perago.runtime.upstream import Input, Limits, Node, Upstream, find_upstream, shown_paths
from perago.ui.data_source import DataSource
from perago.ui.lake_pages import place
from perago.ui.rendering import render

LIMITS = Limits(depth=12, nodes=60, commits=300)
"""Smaller than those of the command, because a page must not take long."""


@dataclass(frozen=True, slots=True)
class Box:
    """A commit in the graph: the files that it made, and its inputs in lanes, unless it is `again`, a box further up."""

    node: Node
    files: str
    own: bool
    again: bool
    lanes: Sequence[Sequence[Box]] = ()


def upstream(source: DataSource, request: Request) -> str:
    """Render where a file or a folder comes from."""
    repository, ref = place(source, request)
    path = request.query_params.get("path", "")
    found = find_upstream(source.lake, repository, ref, path, LIMITS)
    return render(
        "upstream.html",
        source=source,
        view="data",
        repository=repository,
        ref=ref,
        found=found,
        lanes=boxes_of(found),
    )


def boxes_of(found: Upstream) -> list[list[Box]]:
    """Return the graph as lanes, each a sequence of boxes from the result down."""
    return _lanes(found, found.inputs, set())


def _lanes(found: Upstream, inputs: Sequence[Input], shown: set[str]) -> list[list[Box]]:
    return [list(_lane(found, one, shown)) for one in inputs]


def _lane(found: Upstream, one: Input, shown: set[str]) -> Iterator[Box]:
    """Yield boxes one below the other, up to the first with several inputs."""
    while True:
        node, again = found.nodes[one.commit], one.commit in shown
        shown.add(one.commit)
        inputs = () if again else node.inputs
        lanes = _lanes(found, inputs, shown) if len(inputs) > 1 else ()
        yield Box(node, shown_paths(one), one.own, again, lanes)
        if len(inputs) != 1:
            return
        [one] = inputs
