"""What lakeFS does for an object whose bytes go straight to the store: names a place, and links what arrived there.

Writing objects straight to the store, at addresses that lakeFS gives; lakeFS then links what arrived.

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
from typing import Any, TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs.client import Apis, LakeFSClient, Options, Repeat, Timeout
from perago.lake.lakefs.errors import not_lakefs
from perago.lake.lakefs.listing import KEPT_AS
from perago.lake.lakefs.sdk import sdk
from perago.lake.lakefs.transfer.concurrency import again
from perago.lake.lakefs.transfer.routing import Parts
from perago.lake.lakefs.transfer.store_http import AddressRefused, StoreHttp


class StagedObject:
    """What lakeFS does for one object that goes to a branch."""

    def __init__(self, client: LakeFSClient, repository: str, branch: str, path: str) -> None:
        self._client = client
        self._where = (repository, branch)
        self.path = path
        self._doing = f"upload object {path!r} to branch {branch!r} of repository {repository!r}"

    def place(self) -> tuple[str, str]:
        """A new place in the store: its name, and the address to write it."""
        answer = self._call(
            lambda apis, limit: apis.staging.get_physical_address(
                *self._where, self.path, presign=True, _request_timeout=limit
            )
        )
        return self._named(answer, "physical_address"), self._named(answer, "presigned_url")

    def link(self, location: str, md5: str, size: int) -> None:
        """Have the branch name what is at a place."""
        staging = sdk.StagingLocation(physical_address=location)
        wanted = sdk.StagingMetadata(staging=staging, checksum=md5, size_bytes=size)
        self._call(
            lambda apis, limit: apis.staging.link_physical_address(
                *self._where, self.path, wanted, _request_timeout=limit
            )
        )

    def begin(self) -> tuple[str, str]:
        """Begin an upload in parts: its id, and the place."""
        answer = self._call(
            lambda apis, limit: apis.experimental.create_presign_multipart_upload(
                *self._where, self.path, parts=0, _request_timeout=limit
            )
        )
        return self._named(answer, "upload_id"), self._named(answer, "physical_address")

    def part_address(self, where: tuple[str, str], number: int) -> tuple[str, str]:
        """The place of the upload, and the address to write one part of it."""
        wanted = sdk.UploadPartFrom(physical_address=where[1])
        answer = self._call(
            lambda apis, limit: apis.experimental.upload_part(
                *self._where, where[0], self.path, number, wanted, _request_timeout=limit
            )
        )
        return where[1], self._named(answer, "presigned_url")

    def complete(self, where: tuple[str, str], etags: list[str], md5: str, size: int) -> None:
        """Make the object of its parts, on the branch, its MD5 noted; an answer that is lost is looked up."""
        parts = [sdk.UploadPart(part_number=number, etag=etag) for number, etag in enumerate(etags, start=1)]
        wanted = sdk.CompletePresignMultipartUpload(
            physical_address=where[1], parts=parts, user_metadata={KEPT_AS: md5}
        )
        try:
            answer = self._client.call(
                self._doing,
                lambda apis, limit: apis.experimental.complete_presign_multipart_upload(
                    *self._where, where[0], self.path, wanted, _request_timeout=limit
                ),
                # Done twice, it fails the second time.
                repeat=Repeat.UNSENT,
            )
        except LakeUnavailable:
            answer = self._call(
                lambda apis, limit: apis.objects.stat_object(
                    *self._where, self.path, user_metadata=True, _request_timeout=limit
                )
            )
            if (answer.get("metadata") or {}).get(KEPT_AS) != md5:
                raise
        if answer.get("size_bytes") != size:
            raise LakeUnavailable(f"{self._doing}: lakeFS has {answer.get('size_bytes')} bytes, not {size}")

    def abort(self, upload_id: str, location: str) -> None:
        """Drop the parts that arrived."""
        wanted = sdk.AbortPresignMultipartUpload(physical_address=location)
        self._call(
            lambda apis, limit: apis.experimental.abort_presign_multipart_upload(
                *self._where, upload_id, self.path, wanted, _request_timeout=limit
            )
        )

    def _call(self, call: Callable[[Apis, Timeout], Any]) -> Any:
        return self._client.call(self._doing, call, repeat=Repeat.ALWAYS)

    def _named(self, answer: Any, name: str) -> str:
        try:
            return str(answer[name])
        except (KeyError, TypeError):
            raise not_lakefs(self._doing, "") from None


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
