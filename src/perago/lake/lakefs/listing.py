"""Listings: paged, the next page fetched while this one is used, and kept for commits, which never change.

An entry's checksum is the MD5 of its bytes where lakeFS can know it.  Objects that came by a multipart upload carry a
hash of hashes of the same form, so uploads of ours above the gateway's smallest part size also carry their MD5 as
metadata, which wins.  For other people's such objects see `checksums`.

What is uncommitted on a branch of lakeFS.

What differs between two commits of lakeFS, at or below some paths.

lakeFS compares names by their beginning, and a root is cut at path parts: `plays` stands for the object `plays` and for all
below `plays/`, and `plays-old` sorts between the two.  So a root that may be either is asked for twice at most.

The first answer is asked for alone: that one path differs is nearly always all that a caller wants to know.

Pages of lakeFS's listings and comparisons, as the server cuts them: a page costs what is on it.

The server gives at most a thousand rows at a time, so a larger page is put together from several answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from perago.lake.base import Change, Changes, Entry, FolderPage, FolderRow
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import is_like_an_md5
from perago.lake.lakefs.client import Apis, Json, LakeFSClient, Repeat, Timeout
from perago.lake.lakefs.errors import address_of, not_lakefs

MD5_METADATA = "perago-md5"
KEPT_AS = f"X-Amz-Meta-{MD5_METADATA}"

_PAGE = 1000
_COMMIT_ID = re.compile(r"[0-9a-f]{64}")
# As S3 writes it for an object in so many parts; lakeFS has it for imports and for uploads past it.
_ETAG = re.compile(r"[0-9a-f]{32}(-[0-9]{1,5})?")
Row = tuple[str, int, str | None]


class Listings:
    """The objects of a ref, from the cache or from the server."""

    def __init__(self, endpoint: str, client: LakeFSClient, cache: Cache) -> None:
        self._endpoint = endpoint
        self._client = client
        self._cache = cache

    def entries(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Objects whose path starts with `prefix`, sorted by path."""
        # Only a full id is sure to name a commit: lakeFS tries it before branches and tags.
        if not (self._cache.enabled and _COMMIT_ID.fullmatch(ref)):
            pages = self._pages(repository, ref, prefix)
            return (Entry(*row) for rows in pages for row in rows)
        return self._committed(repository, ref, prefix)

    def entry(self, repository: str, ref: str, path: str) -> Entry:
        """The one object of this path, as a listing has it."""
        doing = f"look for {path!r} at {ref!r} of repository {repository!r}"
        found = self._client.call(
            doing,
            lambda apis, limit: apis.objects.stat_object(repository, ref, path, _request_timeout=limit),
            repeat=Repeat.ALWAYS,
        )
        try:
            return Entry(*_row(found))
        except (KeyError, TypeError) as error:
            raise not_lakefs(doing, address_of(self._endpoint)) from error

    def _committed(self, repository: str, commit: str, prefix: str) -> Iterator[Entry]:
        key = json.dumps([self._endpoint, repository, commit, prefix])
        name = f"pages.{hashlib.sha256(key.encode()).hexdigest()}"
        kept = self._cache.lines(name)
        if kept is not None:
            yield from (Entry(*row) for line in kept for row in json.loads(line))
            return
        # As text, which takes a quarter of the memory of rows.
        lines: list[bytes] = []
        for rows in self._pages(repository, commit, prefix):
            lines.append(json.dumps(rows, separators=(",", ":")).encode() + b"\n")
            yield from (Entry(*row) for row in rows)
        # Reached only when the caller took the listing to its end.
        self._cache.save(name, *lines)

    def _pages(self, repository: str, ref: str, prefix: str) -> Iterator[list[Row]]:
        doing = f"list {prefix!r} at {ref!r} of repository {repository!r}"

        def page(apis: Apis, limit: Timeout, after: str) -> Any:
            return apis.objects.list_objects(
                repository, ref, prefix=prefix, after=after, amount=_PAGE, _request_timeout=limit
            )

        for results in _one_ahead(self._client.pages(doing, page)):
            yield [_row(one) for one in results]


def repository_names(client: LakeFSClient) -> list[str]:
    """The names of all repositories of the server."""

    def page(apis: Apis, limit: Timeout, after: str) -> Any:
        return apis.repositories.list_repositories(after=after, amount=_PAGE, _request_timeout=limit)

    return [one["id"] for results in client.pages("list the repositories", page) for one in results]


def _one_ahead(pages: Iterator[list[Json]]) -> Iterator[list[Json]]:
    """The same pages, the next one always under way."""
    first = next(pages, None)
    if first is None or len(first) < _PAGE:
        # Nearly always the only one, and not worth a thread; but whether more follow is the server's word.
        yield from () if first is None else (first,)
        yield from pages
        return
    with ThreadPoolExecutor(1) as ahead:
        while first is not None:
            following = ahead.submit(next, pages, None)
            yield first
            first = following.result()


def _row(one: Json) -> Row:
    return one["path"], one["size_bytes"], _checksum(one)


def _checksum(one: Json) -> str | None:
    own = (one.get("metadata") or {}).get(KEPT_AS, "")
    if is_like_an_md5(own):
        return str(own)
    given = one.get("checksum", "")
    return str(given) if _ETAG.fullmatch(given) else None


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


_FIRST, _DIFF_PAGE = 1, 1000


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
    found = compared(client, (repository, left, right), prefix, lambda after: _DIFF_PAGE if after else _FIRST)
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
    rows = [_folder_row(one) for one in islice(found, limit + 1)]
    return FolderPage(rows[:limit], len(rows) > limit)


def change_page(
    client: LakeFSClient, at: tuple[str, str, str], prefix: str, after: str, limit: int
) -> Changes:
    """At most `limit` differences between two commits below a prefix, after a path."""
    found = compared(client, at, prefix, lambda _: min(limit + 1, _MOST), after)
    rows = [_change(one) for one in islice(found, limit + 1)]
    return Changes(rows[:limit], len(rows) > limit)


def _folder_row(one: Json) -> FolderRow:
    return FolderRow(one["path"], None if one["path_type"] == "common_prefix" else one["size_bytes"])


def _change(one: Json) -> Change:
    if one["type"] == "removed":
        return Change(one["path"], "removed", None)
    return Change(one["path"], "added" if one["type"] == "added" else "changed", one["size_bytes"])
