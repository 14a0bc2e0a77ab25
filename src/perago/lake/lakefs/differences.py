"""What differs between two commits of lakeFS, at or below some paths.

lakeFS compares names by their beginning, and a root is cut at path parts: `plays` stands for the object `plays` and for all
below `plays/`, and `plays-old` sorts between the two.  So a root that may be either is asked for twice at most.

The first answer is asked for alone: that one path differs is nearly always all that a caller wants to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perago.lake.lakefs.client import Apis, Json, LakeFSClient, Timeout

_FIRST, _PAGE = 1, 1000


def differing_paths(
    client: LakeFSClient, repository: str, left: str, right: str, roots: Sequence[str]
) -> Iterator[str]:
    """Paths at or below the roots whose objects differ, root by root."""
    for root in roots:
        if root.endswith("/") or not root:
            yield from _beginning_with(client, repository, left, right, root)
            continue
        # Of all names that begin so, that of the object itself comes first.
        first = next(_beginning_with(client, repository, left, right, root), None)
        if first == root:
            yield root
        if first is not None:
            yield from _beginning_with(client, repository, left, right, f"{root}/")


def _beginning_with(
    client: LakeFSClient, repository: str, left: str, right: str, prefix: str
) -> Iterator[str]:
    found = compared(client, (repository, left, right), prefix, lambda after: _PAGE if after else _FIRST)
    return (str(one["path"]) for one in found)


def compared(
    client: LakeFSClient, at: tuple[str, str, str], prefix: str, amount: Callable[[str], int], after: str = ""
) -> Iterator[Json]:
    """The differences of two commits whose paths begin so, as the server tells them; a page has `amount(path before it)`."""
    repository, left, right = at

    def page(apis: Apis, limit: Timeout, behind: str) -> Any:
        return apis.refs.diff_refs(
            repository,
            left,
            right,
            after=behind,
            amount=amount(behind),
            prefix=prefix,
            type="two_dot",
            _request_timeout=limit,
        )

    doing = f"compare {left!r} with {right!r} below {prefix!r} of repository {repository!r}"
    for results in client.pages(doing, page, after=after):
        yield from results
