"""Reading objects straight from the store, at addresses that lakeFS gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.transfer.addresses import Addresses
from perago.lake.lakefs.transfer.again import again
from perago.lake.lakefs.transfer.store_http import AddressRefused, StoreHttp
from perago.lake.lakefs.transfer.ways import Buffer, StoreUnreachable

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
