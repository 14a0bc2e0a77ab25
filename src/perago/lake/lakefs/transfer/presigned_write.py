"""Writes objects directly to the store, using presigned URLs, and then links them in lakeFS.

Nothing appears on the branch before an object is linked, and only bytes that the store has confirmed are linked.  The
store checks the bytes against the MD5 in the request, and returns their MD5 (as the ETag, unless it encrypts with its
own key).  After a failed upload, lakeFS's garbage collection removes the object, because no branch refers to it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from perago.errors import LakeError, LakeForbidden, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.errors import not_lakefs
from perago.lake.lakefs.listing import KEPT_AS
from perago.lake.lakefs.transfer.concurrency import retry
from perago.lake.lakefs.transfer.routing import Parts
from perago.lake.lakefs.transfer.store_http import StoreHttp, UrlRefused

T = TypeVar("T")


class StagedObject:
    """Makes the lakeFS calls for uploading one object to a branch."""

    def __init__(self, client: LakeFSClient, repository: str, branch: str, path: str) -> None:
        self._client = client
        self._where = (repository, branch, path)
        self.path = path
        self._doing = f"upload object {path!r} to branch {branch!r} of repository {repository!r}"

    def new_location(self) -> tuple[str, str]:
        """Request a new location in the store. Returns its physical address and the presigned URL for writing to it."""
        answer = self._call(api.get_physical_address(*self._where))
        return self._field(answer, "physical_address"), self._field(answer, "presigned_url")

    def link(self, location: str, md5: str, size: int) -> None:
        """Link the object at a location to the branch."""
        self._call(api.link_physical_address(*self._where, location=location, checksum=md5, size=size))

    def begin(self) -> tuple[str, str]:
        """Start a multipart upload. Returns its id and its physical address."""
        answer = self._call(api.create_presign_multipart_upload(*self._where))
        return self._field(answer, "upload_id"), self._field(answer, "physical_address")

    def part_url(self, where: tuple[str, str], number: int) -> tuple[str, str]:
        """Request the URL of one part. Returns the upload's physical address and that URL."""
        upload_id, location = where
        answer = self._call(
            api.upload_part(*self._where, upload_id=upload_id, number=number, location=location)
        )
        return location, self._field(answer, "presigned_url")

    def complete(self, where: tuple[str, str], etags: list[str], md5: str, size: int) -> None:
        """Complete a multipart upload, with the MD5 as metadata.

        If the response is lost, checks whether the object is on the branch.
        """
        upload_id, location = where
        request = api.complete_presign_multipart_upload(
            *self._where,
            upload_id=upload_id,
            location=location,
            etags=etags,
            user_metadata={KEPT_AS: md5},
        )
        try:
            # Not idempotent: the second call fails.
            answer = self._client.call(self._doing, request, repeat=Repeat.UNSENT)
        except LakeUnavailable:
            answer = self._call(api.stat_object(*self._where, user_metadata=True))
            if (answer.get("metadata") or {}).get(KEPT_AS) != md5:
                raise
        if answer.get("size_bytes") != size:
            raise LakeUnavailable(f"{self._doing}: lakeFS has {answer.get('size_bytes')} bytes, not {size}")

    def abort(self, upload_id: str, location: str) -> None:
        """Discard the uploaded parts."""
        self._call(api.abort_presign_multipart_upload(*self._where, upload_id=upload_id, location=location))

    def _call(self, request: api.Request) -> Any:
        return self._client.call(self._doing, request, repeat=Repeat.ALWAYS)

    def _field(self, answer: Any, name: str) -> str:
        try:
            return str(answer[name])
        except (KeyError, TypeError):
            raise not_lakefs(self._doing, "") from None


class PresignedWrites:
    """A `Sink` that writes directly to the store, bypassing lakeFS. Thread-safe."""

    def __init__(self, http: StoreHttp, client: LakeFSClient, options: Options) -> None:
        self._http = http
        self._client = client
        self._options = options

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Write an object with this MD5. Raises `LakeUnavailable` if different bytes arrived."""
        upload = StagedObject(self._client, repository, branch, path)
        _, location = self._send(upload.new_location, path, data, md5)
        upload.link(location, md5, len(data))

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Write an object by multipart upload.

        The store confirms each part. The object appears when all parts have arrived.
        """
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

    def retry(self, doing: str, work: Callable[[], T]) -> T:
        """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""
        return retry(self._options, doing, work)

    def _send_parts(
        self, upload: StagedObject, where: tuple[str, str], pieces: Iterator[bytes], parts: Parts
    ) -> tuple[list[str], int]:
        """Send all parts, a few at a time. Returns their ETags in order, and their total size."""
        etags: list[str] = []
        size = 0
        in_flight: deque[Future[str]] = deque()
        with ThreadPoolExecutor(parts.parallel, "perago-part") as pool:
            try:
                for number, data in enumerate(_in_parts(pieces, parts.size), start=1):
                    if len(in_flight) == parts.parallel:
                        etags.append(in_flight.popleft().result())
                    size += len(data)
                    in_flight.append(pool.submit(self._send_part, upload, where, number, data))
                    # Release the memory: the loop variable would keep the part alive.
                    del data
                etags += [part.result() for part in in_flight]
            except BaseException:
                for part in in_flight:
                    part.cancel()
                raise
        return etags, size

    def _send_part(self, upload: StagedObject, where: tuple[str, str], number: int, data: bytes) -> str:
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()

        def once() -> str:
            # Use a new URL for each try: an upload may take longer than a URL stays valid.
            return self._send(lambda: upload.part_url(where, number), upload.path, data, md5)[0]

        return retry(self._options, f"upload part {number} of object {upload.path!r}", once)

    def _send(
        self, request: Callable[[], tuple[str, str]], path: str, data: bytes, md5: str
    ) -> tuple[str, str]:
        """Send bytes to a URL obtained from `request`, and once more to a new URL if the store rejects the first one.

        Returns the ETag and the location.
        """
        location, url = request()
        try:
            done = self._http.put(url, data, md5)
        except UrlRefused:
            location, url = request()
            try:
                done = self._http.put(url, data, md5)
            except UrlRefused as error:
                raise LakeForbidden(
                    f"upload object {path!r}: {error}, at a new presigned URL too; may lakeFS itself write there? Compare "
                    "the clocks of lakeFS and the store, or set PERAGO_TRANSFER=gateway"
                ) from None
        if done.etag != md5 and not done.encrypted:
            raise LakeUnavailable(
                f"upload object {path!r}: the store received other bytes (ETag {done.etag[:40]})"
            )
        return done.etag, location


def _in_parts(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Regroup pieces into parts of `size`. The last part may be smaller."""
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
