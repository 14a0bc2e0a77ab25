"""Pages of lakeFS's listings and comparisons, as the server cuts them: a page costs what is on it.

The server gives at most a thousand rows at a time, so a larger page is put together from several answers.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from perago.lake.base import Change, Changes, FolderPage, FolderRow
from perago.lake.lakefs.client import Apis, Json, LakeFSClient, Timeout
from perago.lake.lakefs.differences import compared

_MOST = 1000


def folder_page(client: LakeFSClient, at: tuple[str, str], prefix: str, after: str, limit: int) -> FolderPage:
    """At most `limit` rows right below a prefix of a ref, after a row."""
    repository, ref = at

    def page(apis: Apis, timeout: Timeout, behind: str) -> Any:
        return apis.objects.list_objects(
            repository,
            ref,
            prefix=prefix,
            after=behind,
            amount=min(limit + 1, _MOST),
            delimiter="/",
            _request_timeout=timeout,
        )

    doing = f"list the folder {prefix!r} at {ref!r} of repository {repository!r}"
    found = (one for results in client.pages(doing, page, after=after) for one in results)
    rows = [_row(one) for one in islice(found, limit + 1)]
    return FolderPage(rows[:limit], len(rows) > limit)


def change_page(
    client: LakeFSClient, at: tuple[str, str, str], prefix: str, after: str, limit: int
) -> Changes:
    """At most `limit` differences between two commits below a prefix, after a path."""
    found = compared(client, at, prefix, lambda _: min(limit + 1, _MOST), after)
    rows = [_change(one) for one in islice(found, limit + 1)]
    return Changes(rows[:limit], len(rows) > limit)


def _row(one: Json) -> FolderRow:
    return FolderRow(one["path"], None if one["path_type"] == "common_prefix" else one["size_bytes"])


def _change(one: Json) -> Change:
    if one["type"] == "removed":
        return Change(one["path"], "removed", None)
    return Change(one["path"], "added" if one["type"] == "added" else "changed", one["size_bytes"])
