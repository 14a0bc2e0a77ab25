"""Reads objects directly from the store, using presigned URLs.

A listing returns up to a thousand URLs at once, and a stat returns one.  A URL is requested shortly before it is used,
because it expires (after 15 minutes, unless configured otherwise).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.errors import not_lakefs
from perago.lake.lakefs.transfer.concurrency import retry
from perago.lake.lakefs.transfer.routing import Buffer, StoreUnreachable
from perago.lake.lakefs.transfer.store_http import StoreHttp, UrlRefused

T = TypeVar("T")

_BATCH = 500
_FEW = 4
"""Up to this many URLs are requested one by one: on several threads, this is as fast as a listing."""
_MOST_PAGES = 3
"""The maximum number of pages listed for a batch.

The remaining URLs are requested one by one, so that sparse objects never cause a whole folder to be listed."""


def needs_single_calls(paths: Sequence[str]) -> bool:
    """Return whether there are so few objects that each URL is requested in a separate call."""
    return len(paths) <= _FEW


class PresignedUrls:
    """Requests the presigned URLs of objects at one ref. Thread-safe.

    The URLs of the paths in `ahead` are requested in batches, in sorted order.
    """

    def __init__(
        self, client: LakeFSClient, repository: str, ref: str, ahead: Sequence[str], pool: ThreadPoolExecutor
    ) -> None:
        self._client = client
        self._repository = repository
        self._ref = ref
        self._pool = pool
        ordered = [] if needs_single_calls(ahead) else sorted(ahead)
        self._batches = [ordered[at : at + _BATCH] for at in range(0, len(ordered), _BATCH)]
        self._number = {path: number for number, batch in enumerate(self._batches) for path in batch}
        self._requests: dict[int, Future[dict[str, str]]] = {}
        self._lock = threading.Lock()

    def take(self, path: str) -> str:
        """Return an object's URL, from a batch if possible. Each URL in a batch is returned only once."""
        number = self._number.get(path)
        found = None if number is None else self._batch(number).pop(path, None)
        return found or self.fresh(path)

    def fresh(self, path: str) -> str:
        """Request a new presigned URL for an object."""
        doing = (
            f"request a presigned URL of object {path!r} at {self._ref!r} of repository {self._repository!r}"
        )
        request = api.stat_object(self._repository, self._ref, path, presign=True)
        return _url(self._client.call(doing, request, repeat=Repeat.ALWAYS), doing)

    def _batch(self, number: int) -> dict[str, str]:
        with self._lock:
            for wanted in (number, number + 1):
                if wanted < len(self._batches) and wanted not in self._requests:
                    self._requests[wanted] = self._pool.submit(self._list, self._batches[wanted])
            request = self._requests[number]
        return request.result()

    def _list(self, batch: Sequence[str]) -> dict[str, str]:
        """Return the URLs of those objects that are in the first few pages of the listing."""
        doing = f"request presigned URLs at {self._ref!r} of repository {self._repository!r}"
        prefix = _common_prefix(batch[0], batch[-1])
        wanted, found = set(batch), {}

        def page(after: str) -> api.Request:
            amount = min(1000, 2 * len(batch))
            return api.list_objects(
                self._repository, self._ref, prefix=prefix, after=after, amount=amount, presign=True
            )

        # A listing starts after the given name, so pass one that sorts before the first object.
        pages = self._client.pages(doing, page, after=batch[0][:-1])
        for _, results in zip(range(_MOST_PAGES), pages, strict=False):
            for one in results:
                if one.get("path") in wanted:
                    found[one["path"]] = _url(one, doing)
            if len(found) == len(batch) or (results and results[-1]["path"] >= batch[-1]):
                break
        return found


def _url(answer: Any, doing: str) -> str:
    try:
        url = str(answer["physical_address"])
    except (KeyError, TypeError):
        raise not_lakefs(doing, "") from None
    if not url.startswith(("http://", "https://")):
        raise LakeError(f"{doing}: lakeFS gave no presigned URL; set PERAGO_TRANSFER=gateway")
    return url


def _common_prefix(first: str, last: str) -> str:
    """Return the common prefix of two paths. Every path that sorts between them shares it."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(one for one, _ in pairs)


class PresignedReads:
    """A `Source` for one download that reads directly from the store, bypassing lakeFS."""

    def __init__(self, http: StoreHttp, urls: PresignedUrls, options: Options) -> None:
        self._http = http
        self._urls = urls
        self._options = options

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """Return all bytes of an object in one request."""
        return self._with_url(ref, path, self._http.get)

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """Return an object's bytes from `span[0]` up to but not including `span[1]`."""
        return self._with_url(ref, path, lambda url: self._http.get(url, span))

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """Stream an object's bytes in pieces of at most `chunk`. A broken stream resumes where it stopped."""
        doing = f"read object {path!r} at {ref!r} of repository {repository!r}"
        url, renewed = self._urls.take(path), False
        at, failures = 0, 0
        while True:
            try:
                for piece in self._http.stream(url, at, chunk):
                    at, renewed = at + len(piece), False
                    yield piece
                return
            except StoreUnreachable:
                raise
            except UrlRefused as error:
                if renewed:
                    raise _refusal(error, path, ref) from None
                url, renewed = self._urls.fresh(path), True
                continue
            except LakeUnavailable as error:
                failures += 1
                if failures >= self._options.tries:
                    raise LakeUnavailable(f"{doing}: {error}") from error
            self._options.sleep(self._options.delay(failures))

    def retry(self, doing: str, work: Callable[[], T]) -> T:
        """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""
        return retry(self._options, doing, work)

    def _with_url(self, ref: str, path: str, get: Callable[[str], bytes]) -> bytes:
        """Call `get` with the object's URL, and again with a new URL if the store rejects the first one."""
        try:
            return get(self._urls.take(path))
        except UrlRefused:
            try:
                return get(self._urls.fresh(path))
            except UrlRefused as error:
                raise _refusal(error, path, ref) from None


def _refusal(error: UrlRefused, path: str, ref: str) -> LakeError:
    return LakeForbidden(
        f"read object {path!r} at {ref!r}: {error}, at a new presigned URL too; may lakeFS itself read it? Compare the "
        "clocks of lakeFS and the store, or set PERAGO_TRANSFER=gateway"
    )
