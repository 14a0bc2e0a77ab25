"""What is uncommitted on a branch of lakeFS."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout

_PAGE = 1000


def is_dirty(client: LakeFSClient, repository: str, branch: str) -> bool:
    """Whether a branch holds uncommitted changes."""
    answer = client.call(
        f"look for uncommitted objects on branch {branch!r} of repository {repository!r}",
        lambda apis, limit: apis.branches.diff_branch(repository, branch, amount=1, _request_timeout=limit),
        repeat=Repeat.ALWAYS,
    )
    return bool(answer["results"])


def changed_paths(
    client: LakeFSClient, repository: str, branch: str, prefix: str, after: str
) -> Iterator[str]:
    """Paths after `after` that begin with `prefix` and have uncommitted changes, in order."""

    def page(apis: Apis, limit: Timeout, start: str) -> Any:
        return apis.branches.diff_branch(
            repository, branch, prefix=prefix, after=start, amount=_PAGE, _request_timeout=limit
        )

    doing = f"list what is uncommitted on branch {branch!r} of repository {repository!r}"
    for results in client.pages(doing, page, after=after):
        for one in results:
            yield str(one["path"])
