"""The presigned addresses of objects that are to be read: a listing gives a thousand at once, a look gives one.

An address is asked for shortly before it is used, since it expires (after 15 minutes, unless the operator says
otherwise), and is kept no longer than until then.

Reading objects straight from the store, at addresses that lakeFS gives.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs.client import Apis, LakeFSClient, Options, Repeat, Timeout
from perago.lake.lakefs.errors import not_lakefs
from perago.lake.lakefs.transfer.concurrency import again
from perago.lake.lakefs.transfer.routing import Buffer, StoreUnreachable
from perago.lake.lakefs.transfer.store_http import AddressRefused, StoreHttp

_BATCH = 500
_FEW = 4
"""So many objects are looked at one by one: by several threads, that is as quick as a listing."""
_MOST_PAGES = 3
"""Objects that others lie between are looked at one by one, rather than listing a whole folder for a few."""


def asked_alone(paths: Sequence[str]) -> bool:
    """Whether these are so few that each is asked for in a call of its own."""
    return len(paths) <= _FEW


class Addresses:
    """Addresses of objects of one ref, `ahead` of them in the order in which they will be asked for; safe for threads."""

    def __init__(
        self, client: LakeFSClient, repository: str, ref: str, ahead: Sequence[str], pool: ThreadPoolExecutor
    ) -> None:
        self._client = client
        self._repository = repository
        self._ref = ref
        self._pool = pool
        ordered = [] if asked_alone(ahead) else sorted(ahead)
        self._batches = [ordered[at : at + _BATCH] for at in range(0, len(ordered), _BATCH)]
        self._number = {path: number for number, batch in enumerate(self._batches) for path in batch}
        self._asked: dict[int, Future[dict[str, str]]] = {}
        self._lock = threading.Lock()

    def take(self, path: str) -> str:
        """An address that was asked for with others, if there is one, else one of its own."""
        number = self._number.get(path)
        found = None if number is None else self._batch(number).pop(path, None)
        return found or self.fresh(path)

    def fresh(self, path: str) -> str:
        """A new address."""
        doing = f"ask for the address of object {path!r} at {self._ref!r} of repository {self._repository!r}"

        def stat(apis: Apis, limit: Timeout) -> Any:
            return apis.objects.stat_object(
                self._repository, self._ref, path, presign=True, _request_timeout=limit
            )

        return _address(self._client.call(doing, stat, repeat=Repeat.ALWAYS), doing)

    def _batch(self, number: int) -> dict[str, str]:
        with self._lock:
            for wanted in (number, number + 1):
                if wanted < len(self._batches) and wanted not in self._asked:
                    self._asked[wanted] = self._pool.submit(self._list, self._batches[wanted])
            asked = self._asked[number]
        return asked.result()

    def _list(self, batch: Sequence[str]) -> dict[str, str]:
        """Addresses of as many of these as a few pages give."""
        doing = f"ask for addresses at {self._ref!r} of repository {self._repository!r}"
        prefix = _common(batch[0], batch[-1])
        wanted, found = set(batch), {}

        def page(apis: Apis, limit: Timeout, after: str) -> Any:
            return apis.objects.list_objects(
                self._repository,
                self._ref,
                prefix=prefix,
                after=after,
                amount=min(1000, 2 * len(batch)),
                presign=True,
                _request_timeout=limit,
            )

        # The name before the first: what is listed begins after it.
        pages = self._client.pages(doing, page, after=batch[0][:-1])
        for _, results in zip(range(_MOST_PAGES), pages, strict=False):
            for one in results:
                if one.get("path") in wanted:
                    found[one["path"]] = _address(one, doing)
            if len(found) == len(batch) or (results and results[-1]["path"] >= batch[-1]):
                break
        return found


def _address(answer: Any, doing: str) -> str:
    try:
        address = str(answer["physical_address"])
    except (KeyError, TypeError):
        raise not_lakefs(doing, "") from None
    if not address.startswith(("http://", "https://")):
        raise LakeError(f"{doing}: lakeFS gave no presigned address; set PERAGO_TRANSFER=gateway")
    return address


def _common(first: str, last: str) -> str:
    """What both begin with, and so does all that stands between them."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(one for one, _ in pairs)


T = TypeVar("T")


class PresignedReads:
    """The `Source` of one download: its objects' addresses, and the store."""

    def __init__(self, http: StoreHttp, addresses: Addresses, options: Options) -> None:
        self._http = http
        self._addresses = addresses
        self._options = options

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """All bytes of an object, in one request."""
        return self._at_address(ref, path, self._http.get)

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """An object's bytes from `span[0]` up to, not including, `span[1]`."""
        return self._at_address(ref, path, lambda address: self._http.get(address, span))

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """An object's bytes in pieces of at most `chunk`; a cut stream goes on where it stopped, at a new address."""
        doing = f"read object {path!r} at {ref!r} of repository {repository!r}"
        address, renewed = self._addresses.take(path), False
        at, failures = 0, 0
        while True:
            try:
                for piece in self._http.stream(address, at, chunk):
                    at, renewed = at + len(piece), False
                    yield piece
                return
            except StoreUnreachable:
                raise
            except AddressRefused as error:
                if renewed:
                    raise _refused(error, path, ref) from None
                address, renewed = self._addresses.fresh(path), True
                continue
            except LakeUnavailable as error:
                failures += 1
                if failures >= self._options.tries:
                    raise LakeUnavailable(f"{doing}: {error}") from error
            self._options.sleep(self._options.delay(failures))

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
        return again(self._options, doing, work)

    def _at_address(self, ref: str, path: str, get: Callable[[str], bytes]) -> bytes:
        """What `get` gives at the object's address; one that has expired is asked for again."""
        try:
            return get(self._addresses.take(path))
        except AddressRefused:
            try:
                return get(self._addresses.fresh(path))
            except AddressRefused as error:
                raise _refused(error, path, ref) from None


def _refused(error: AddressRefused, path: str, ref: str) -> LakeError:
    return LakeForbidden(
        f"read object {path!r} at {ref!r}: {error}, at a new address too; may lakeFS itself read it? Compare the clocks "
        "of lakeFS and the store, or set PERAGO_TRANSFER=gateway"
    )
