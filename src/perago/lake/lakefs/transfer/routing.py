"""Chooses the route of each transfer, and defines the interface that both routes share.

    gateway      through lakeFS's S3 gateway: lakeFS itself reads and writes the store
    presigned    directly from and to the store, at presigned URLs that lakeFS issues for each object

Both routes transfer the same bytes with the same checks.

    PERAGO_TRANSFER    auto         presigned if the server offers it for an S3 store, else the gateway
                       gateway      the gateway
                       presigned    presigned, or an error that explains why it is not possible

With `auto`, small files are uploaded through the gateway.  A presigned upload takes two lakeFS calls, one for the URL
and one to link the object, which cost lakeFS more than passing on a few bytes (measured for 10 KB: 1.9 ms of lakeFS's
CPU time instead of 1.1 ms, and four times the wall time).  Reading many objects has no such cost, since one call
returns hundreds of URLs.  A few small objects, which need one call each, are read through the gateway as well.

With `auto`, the gateway is also used if the store is unreachable from this machine.  This is logged once, as a warning,
and the store is tried again after ten minutes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from perago.errors import LakeRefused, LakeUnavailable
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Repeat

TransferMode = Literal["auto", "gateway", "presigned"]
Buffer = bytes | memoryview
T = TypeVar("T")

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Hosts for which no proxy is ever used."""
_UNREACHABLE_SECONDS = 600.0
_SMALL = 1024 * 1024
_log = logging.getLogger(__name__)


class StoreUnreachable(LakeUnavailable):
    """The object store is unreachable from here; callers fall back to the gateway."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The part size of a multipart upload, and the number of parts in flight."""

    size: int
    parallel: int


class Source(Protocol):
    """Reads objects. Every call has a time limit and raises only Perago's errors."""

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """Return all bytes of an object in one request."""

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """Return an object's bytes from `span[0]` up to but not including `span[1]`."""

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """Stream an object's bytes in pieces of about `chunk`. A broken stream resumes where it stopped."""

    def retry(self, doing: str, work: Callable[[], T]) -> T:
        """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""


class Sink(Protocol):
    """Writes objects. An object appears on the branch complete and verified, or not at all."""

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Write an object with this MD5. Raises `LakeUnavailable` if different bytes arrived."""

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Write an object in several requests. It appears when the last part has arrived."""

    def retry(self, doing: str, work: Callable[[], T]) -> T:
        """Run the idempotent `work` until it succeeds, fails permanently, or runs out of tries."""


@dataclass(frozen=True, slots=True)
class PresignSupport:
    """The server's kind of store, and its support for presigned URLs: for single objects and for multipart uploads."""

    single: bool
    parts: bool
    store: str


class Routing:
    """Chooses the route for each transfer. Thread-safe."""

    def __init__(self, mode: TransferMode, client: LakeFSClient, clock: Callable[[], float]) -> None:
        self._mode = mode
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._offer: PresignSupport | None = None
        self._not_before = 0.0
        self._warned = False

    def upload_direct(self, size: int, *, in_parts: bool) -> bool:
        """Return whether a file of this size is uploaded directly to the store."""
        if self._mode == "auto" and size < _SMALL:
            return False
        return self.presigned(in_parts=in_parts)

    def download_direct(self, size: int, *, single_call: bool) -> bool:
        """Return whether an object is read directly from the store.

        `single_call` is True if requesting its URL takes a separate lakeFS call.
        """
        if self._mode == "auto" and size < _SMALL and single_call:
            return False
        return self.presigned()

    def presigned(self, *, in_parts: bool = False) -> bool:
        """Return whether to use presigned URLs. Raises `LakeRefused` if they are required but not available."""
        if self._mode == "gateway" or (self._mode == "auto" and self._clock() < self._not_before):
            return False
        offer = self._support()
        offered = offer.single and offer.store == "s3"
        if self._mode == "presigned" and not offered:
            raise LakeRefused(
                f"PERAGO_TRANSFER=presigned, but this lakeFS (store {offer.store!r}) offers no presigned access to an S3 "
                "store; set PERAGO_TRANSFER=auto"
            )
        # A server may presign single objects only. Multipart uploads then use the gateway.
        return offered and (offer.parts or not in_parts)

    def unreachable(self, problem: StoreUnreachable) -> None:
        """Use only the gateway for a while. Raises `StoreUnreachable` if the setting allows only presigned URLs."""
        if self._mode == "presigned":
            raise StoreUnreachable(
                f"{problem}; set PERAGO_TRANSFER=auto to go through lakeFS, or have lakeFS's "
                "blockstore.s3.pre_signed_endpoint name an address that workers reach"
            ) from None
        with self._lock:
            self._not_before = self._clock() + _UNREACHABLE_SECONDS
            warned, self._warned = self._warned, True
        if not warned:
            _log.warning(
                "%s: objects go through lakeFS's gateway instead; to have them go straight to the store, make lakeFS's "
                "blockstore.s3.pre_signed_endpoint an address that workers reach, or set PERAGO_TRANSFER=gateway "
                "to leave it at that",
                problem,
            )

    def _support(self) -> PresignSupport:
        with self._lock:
            if self._offer is None:
                answer = self._client.call(
                    "ask lakeFS for its storage", api.get_config(), repeat=Repeat.ALWAYS
                )
                storage = (answer.get("storage_config") if isinstance(answer, dict) else None) or {}
                self._offer = PresignSupport(
                    single=bool(storage.get("pre_sign_support")),
                    parts=bool(storage.get("pre_sign_multipart_upload")),
                    store=str(storage.get("blockstore_type") or ""),
                )
            return self._offer
