"""Listings: paged, the next page fetched while this one is used, and kept for commits, which never change.

An entry's checksum is the MD5 of its bytes where lakeFS can know it.  Objects that came by a multipart upload carry a
hash of hashes of the same form, so uploads of ours above the gateway's smallest part size also carry their MD5 as
metadata, which wins.  For other people's such objects see `checksums`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from perago.lake.base import Entry
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
