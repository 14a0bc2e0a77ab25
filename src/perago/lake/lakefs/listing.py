"""Listings and diffs from lakeFS: objects at a ref, uncommitted changes, differences between commits, folder pages.

A full listing fetches the next page while the current one is being used.  Listings of commits are cached, since commits
never change.  The cost of a page of a folder or of changes is proportional to its rows.  The server returns at most a
thousand rows at a time, so larger pages are assembled from several responses.

An entry's checksum is the MD5 of its bytes if lakeFS knows it.  The checksum of a multipart upload is a hash of
hashes that looks the same, so Perago's uploads above the gateway's smallest part size also store their MD5 as metadata.
This MD5 takes precedence.  For multipart objects uploaded by other tools, see `checksums`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from perago.errors import LakeNotFound
from perago.lake.base import Change, Changes, Entry, FolderPage, FolderRow
from perago.lake.lakefs import api
from perago.lake.lakefs.api import Json
from perago.lake.lakefs.cache.cache import Cache
from perago.lake.lakefs.checksums import is_like_an_md5
from perago.lake.lakefs.client import LakeFSClient, Repeat
from perago.lake.lakefs.errors import address_of, not_lakefs

MD5_METADATA = "perago-md5"
KEPT_AS = f"X-Amz-Meta-{MD5_METADATA}"

_PAGE = 1000
_FIRST_DIFF_PAGE = 1
"""The size of the first page of a diff.

Callers usually want to know only whether any path differs, so the first page contains a single difference.
"""

_COMMIT_ID = re.compile(r"[0-9a-f]{64}")
# S3 appends the number of parts, which lakeFS preserves for imports and presigned uploads.
_ETAG = re.compile(r"[0-9a-f]{32}(-[0-9]{1,5})?")
Row = tuple[str, int, str | None]


class Listings:
    """Lists the objects at a ref, from the cache or from the server."""

    def __init__(self, endpoint: str, client: LakeFSClient, cache: Cache) -> None:
        self._endpoint = endpoint
        self._client = client
        self._cache = cache

    def entries(self, repository: str, ref: str, prefix: str) -> Iterator[Entry]:
        """Yield the objects whose path starts with `prefix`, sorted by path."""
        # Only a full id is certain to name a commit: lakeFS resolves ids before branches and tags.
        if not (self._cache.enabled and _COMMIT_ID.fullmatch(ref)):
            pages = self._pages(repository, ref, prefix)
            return (Entry(*row) for rows in pages for row in rows)
        return self._cached_entries(repository, ref, prefix)

    def entry(self, repository: str, ref: str, path: str) -> Entry:
        """Return the object at exactly this path, as it appears in a listing."""
        doing = f"look for {path!r} at {ref!r} of repository {repository!r}"
        if not path:
            # lakeFS answers 400.
            raise LakeNotFound(f"{doing}: no object has an empty path")
        found = self._client.call(doing, api.stat_object(repository, ref, path), repeat=Repeat.ALWAYS)
        try:
            return Entry(*_row(found))
        except (KeyError, TypeError) as error:
            raise not_lakefs(doing, address_of(self._endpoint)) from error

    def _cached_entries(self, repository: str, commit: str, prefix: str) -> Iterator[Entry]:
        key = json.dumps([self._endpoint, repository, commit, prefix])
        name = f"pages.{hashlib.sha256(key.encode()).hexdigest()}"
        cached = self._cache.lines(name)
        if cached is not None:
            yield from (Entry(*row) for line in cached for row in json.loads(line))
            return
        # Collect text, which takes a quarter of the memory that rows would.
        lines: list[bytes] = []
        for rows in self._pages(repository, commit, prefix):
            lines.append(json.dumps(rows, separators=(",", ":")).encode() + b"\n")
            yield from (Entry(*row) for row in rows)
        # Reached only if the caller read the whole listing.
        self._cache.save(name, *lines)

    def _pages(self, repository: str, ref: str, prefix: str) -> Iterator[list[Row]]:
        doing = f"list {prefix!r} at {ref!r} of repository {repository!r}"
        pages = self._client.pages(
            doing,
            lambda after: api.list_objects(repository, ref, prefix=prefix, after=after, amount=_PAGE),
        )
        for results in _prefetch(pages):
            yield [_row(one) for one in results]


def repository_names(client: LakeFSClient) -> list[str]:
    """Return the names of all repositories on the server."""
    pages = client.pages(
        "list the repositories", lambda after: api.list_repositories(after=after, amount=_PAGE)
    )
    return [one["id"] for results in pages for one in results]


def _prefetch(pages: Iterator[list[Json]]) -> Iterator[list[Json]]:
    """Yield these pages unchanged, fetching the next one while the caller uses the current one."""
    first = next(pages, None)
    if first is None or len(first) < _PAGE:
        # This is nearly always the only page and not worth a thread. But only the server knows whether more follow.
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
    """Return whether a branch has uncommitted changes."""
    answer = client.call(
        f"look for uncommitted objects on branch {branch!r} of repository {repository!r}",
        api.diff_branch(repository, branch, amount=1),
        repeat=Repeat.ALWAYS,
    )
    return bool(answer["results"])


def uncommitted_paths(
    client: LakeFSClient, repository: str, branch: str, prefix: str, after: str
) -> Iterator[str]:
    """Yield, in order, the paths after `after` that start with `prefix` and have uncommitted changes."""
    pages = client.pages(
        f"list what is uncommitted on branch {branch!r} of repository {repository!r}",
        lambda start: api.diff_branch(repository, branch, prefix=prefix, after=start, amount=_PAGE),
        after=after,
    )
    for results in pages:
        for one in results:
            yield str(one["path"])


def differing_paths(
    client: LakeFSClient, repository: str, left: str, right: str, roots: Sequence[str]
) -> Iterator[str]:
    """Yield the paths at or below the roots whose objects differ between two commits, root by root.

    lakeFS compares by name prefix, but a root is matched by whole path parts: `plays` means the object `plays` and
    everything below `plays/`.  Since `plays-old` sorts between the two, a root that may be an object or a folder takes
    up to two comparisons.
    """
    for root in roots:
        if root.endswith("/") or not root:
            yield from _differing_below(client, repository, left, right, root)
            continue
        # The object itself sorts before all other names with this prefix.
        first = next(_differing_below(client, repository, left, right, root), None)
        if first == root:
            yield root
        if first is not None:
            yield from _differing_below(client, repository, left, right, f"{root}/")


def _differing_below(
    client: LakeFSClient, repository: str, left: str, right: str, prefix: str
) -> Iterator[str]:
    found = compared(
        client, (repository, left, right), prefix, lambda after: _PAGE if after else _FIRST_DIFF_PAGE
    )
    return (str(one["path"]) for one in found)


def compared(
    client: LakeFSClient, at: tuple[str, str, str], prefix: str, amount: Callable[[str], int], after: str = ""
) -> Iterator[Json]:
    """Yield the differences that the server reports between two commits below a prefix.

    `amount(path)` is the number of rows to request for the page that starts after `path`.
    """
    repository, left, right = at

    def page(behind: str) -> api.Request:
        return api.diff_refs(repository, left, right, prefix=prefix, after=behind, amount=amount(behind))

    doing = f"compare {left!r} with {right!r} below {prefix!r} of repository {repository!r}"
    for results in client.pages(doing, page, after=after):
        yield from results


def folder_page(client: LakeFSClient, at: tuple[str, str], prefix: str, after: str, limit: int) -> FolderPage:
    """Return at most `limit` direct children of a prefix at a ref, starting after the row `after`."""
    repository, ref = at

    def page(behind: str) -> api.Request:
        amount = min(limit + 1, _PAGE)
        return api.list_objects(repository, ref, prefix=prefix, after=behind, amount=amount, delimiter="/")

    doing = f"list the folder {prefix!r} at {ref!r} of repository {repository!r}"
    found = (one for results in client.pages(doing, page, after=after) for one in results)
    rows = [_folder_row(one) for one in islice(found, limit + 1)]
    return FolderPage(rows[:limit], len(rows) > limit)


def change_page(
    client: LakeFSClient, at: tuple[str, str, str], prefix: str, after: str, limit: int
) -> Changes:
    """Return at most `limit` differences between two commits below a prefix, starting after the path `after`."""
    found = compared(client, at, prefix, lambda _: min(limit + 1, _PAGE), after)
    rows = [_change(one) for one in islice(found, limit + 1)]
    return Changes(rows[:limit], len(rows) > limit)


def conflicting_paths(client: LakeFSClient, at: tuple[str, str, str], limit: int) -> list[str]:
    """Return at most `limit` paths in which a merge of the second ref into the third would conflict."""
    repository, source, target = at

    def page(behind: str) -> api.Request:
        return api.diff_refs(
            repository, target, source, prefix="", after=behind, amount=_PAGE, type="three_dot"
        )

    doing = f"look for conflicts between {source!r} and {target!r} of repository {repository!r}"
    found = (one for results in client.pages(doing, page) for one in results)
    return list(islice((str(one["path"]) for one in found if one["type"] == "conflict"), limit))


def _folder_row(one: Json) -> FolderRow:
    return FolderRow(one["path"], None if one["path_type"] == "common_prefix" else one["size_bytes"])


def _change(one: Json) -> Change:
    if one["type"] == "removed":
        return Change(one["path"], "removed", None)
    return Change(one["path"], "added" if one["type"] == "added" else "changed", one["size_bytes"])
