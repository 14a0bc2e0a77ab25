"""Writing objects straight to the store, at addresses that lakeFS gives; lakeFS then links what arrived.

Nothing appears on the branch before the link, and the link is made only of bytes that the store has confirmed: it
compares them with the MD5 sent along, and says the MD5 itself (as the ETag, unless it encrypts with a key of its own).
An upload that fails leaves an object that no branch names, which lakeFS's garbage collection removes.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs.client import LakeFSClient, Options
from perago.lake.lakefs.transfer.again import again
from perago.lake.lakefs.transfer.staged_object import StagedObject
from perago.lake.lakefs.transfer.store_http import AddressRefused, StoreHttp
from perago.lake.lakefs.transfer.ways import Parts

T = TypeVar("T")


class PresignedWrites:
    """A `Sink` that goes past lakeFS; safe for threads."""

    def __init__(self, http: StoreHttp, client: LakeFSClient, options: Options) -> None:
        self._http = http
        self._client = client
        self._options = options

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Make an object of `data`, whose MD5 this is."""
        upload = StagedObject(self._client, repository, branch, path)
        _, location = self._send(upload.place, path, data, md5)
        upload.link(location, md5, len(data))

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Make an object of pieces, each part confirmed by the store; it appears at the end."""
        pieces, parts = content
        upload = StagedObject(self._client, repository, branch, path)
        upload_id, location = upload.begin()
        try:
            etags, size = self._send_parts(upload, (upload_id, location), pieces, parts)
        except BaseException:
            with contextlib.suppress(LakeError):
                upload.abort(upload_id, location)
            raise
        upload.complete((upload_id, location), etags, md5, size)

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""
        return again(self._options, doing, work)

    def _send_parts(
        self, upload: StagedObject, where: tuple[str, str], pieces: Iterator[bytes], parts: Parts
    ) -> tuple[list[str], int]:
        """All parts, a few under way; returns their ETags in order, and their bytes together."""
        etags: list[str] = []
        size = 0
        under_way: deque[Future[str]] = deque()
        with ThreadPoolExecutor(parts.at_once, "perago-part") as pool:
            try:
                for number, data in enumerate(_in_parts(pieces, parts.size), start=1):
                    if len(under_way) == parts.at_once:
                        etags.append(under_way.popleft().result())
                    size += len(data)
                    under_way.append(pool.submit(self._send_part, upload, where, number, data))
                    # It is in memory as long as somebody names it.
                    del data
                etags += [part.result() for part in under_way]
            except BaseException:
                for part in under_way:
                    part.cancel()
                raise
        return etags, size

    def _send_part(self, upload: StagedObject, where: tuple[str, str], number: int, data: bytes) -> str:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()

        def once() -> str:
            # Each try at an address of its own: an upload may well take longer than an address lives.
            return self._send(lambda: upload.part_address(where, number), upload.path, data, md5)[0]

        return again(self._options, f"upload part {number} of object {upload.path!r}", once)

    def _send(self, ask: Callable[[], tuple[str, str]], path: str, data: bytes, md5: str) -> tuple[str, str]:
        """Send bytes to an address that `ask` gives with its place, to another if that has expired; ETag and place."""
        place, address = ask()
        try:
            done = self._http.put(address, data, md5)
        except AddressRefused:
            place, address = ask()
            try:
                done = self._http.put(address, data, md5)
            except AddressRefused as error:
                raise LakeForbidden(
                    f"upload object {path!r}: {error}, at a new address too; may lakeFS itself write there? Compare the "
                    "clocks of lakeFS and the store, or set PERAGO_TRANSFER=gateway"
                ) from None
        if done.etag != md5 and not done.encrypted:
            raise LakeUnavailable(
                f"upload object {path!r}: the store received other bytes (ETag {done.etag[:40]})"
            )
        return done.etag, place


def _in_parts(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in parts of `size`, of which the last may be smaller."""
    held: list[bytes] = []
    length = 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        while length >= size:
            whole = b"".join(held)
            yield whole[:size]
            held, length = [whole[size:]], length - size
    if length:
        yield b"".join(held)
