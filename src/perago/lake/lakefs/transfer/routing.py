"""The two ways of an object's bytes, as downloads and uploads see them.

    gateway      through lakeFS's S3 gateway: lakeFS itself reads and writes the store
    presigned    straight from and to the store, at addresses that lakeFS gives for each object

Both give the same bytes with the same checks; which one is taken is decided in `choice`.

Which way bytes go: what the setting says, what the server offers, and what can be reached from here.

    PERAGO_TRANSFER    auto         presigned where the server offers it for an S3 store, else the gateway
                       gateway      the gateway
                       presigned    presigned, or an error that says why not

With `auto`, small files are sent through the gateway: past it they take two calls of lakeFS each, to ask for an address
and to link, which cost lakeFS more than passing on a few bytes (measured for 10 KB: 1.9 ms of its CPU against 1.1, and four
times the wall time).  Reading has no such price where there are many, since addresses come by the hundred; a few small
objects, each with a call for its address, are read through the gateway as well.

With `auto`, a store that cannot be reached from this machine means the gateway as well: one warning says so, and after
ten minutes the store gets another chance.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from perago.errors import LakeRefused, LakeUnavailable
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout

T = TypeVar("T")
Buffer = bytes | memoryview


class StoreUnreachable(LakeUnavailable):
    """No connection to the object store came about from this machine; the gateway may do."""


@dataclass(frozen=True, slots=True)
class Parts:
    """In parts of which size an object goes, and how many of them are under way at once."""

    size: int
    at_once: int


class Source(Protocol):
    """Where objects are read; every call is finite, and fails as one of Perago's errors."""

    def get(self, repository: str, ref: str, path: str) -> Buffer:
        """All bytes of an object, in one request."""

    def get_range(self, repository: str, ref: str, path: str, span: tuple[int, int]) -> Buffer:
        """An object's bytes from `span[0]` up to, not including, `span[1]`."""

    def stream(self, repository: str, ref: str, path: str, chunk: int) -> Iterator[Buffer]:
        """An object's bytes in pieces of about `chunk`; a cut stream goes on where it stopped."""

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""


class Sink(Protocol):
    """Where objects are made; an object appears on the branch whole, verified, or not at all."""

    def put(self, repository: str, branch: str, path: str, data: bytes, md5: str) -> None:
        """Make an object of `data`, whose MD5 this is; `LakeUnavailable` if other bytes arrived."""

    def put_parts(
        self, repository: str, branch: str, path: str, content: tuple[Iterator[bytes], Parts], md5: str
    ) -> None:
        """Make an object of pieces in several requests; it appears at the end."""

    def again(self, doing: str, work: Callable[[], T]) -> T:
        """Do `work`, which may be done twice, until it succeeds, is refused, or the tries are used up."""


TransferMode = Literal["auto", "gateway", "presigned"]

_PATIENCE_SECONDS = 600.0
_SMALL = 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PresignSupport:
    """What a server offers: presigned addresses, and for uploads in parts too."""

    single: bool
    parts: bool
    store: str


class Routing:
    """The way of the next transfer; safe for threads."""

    def __init__(self, mode: TransferMode, client: LakeFSClient, clock: Callable[[], float]) -> None:
        self._mode = mode
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._offer: PresignSupport | None = None
        self._not_before = 0.0
        self._said = False

    def past_up(self, size: int, *, in_parts: bool) -> bool:
        """Whether a file of this size is sent straight to the store, in parts or whole."""
        if self._mode == "auto" and size < _SMALL:
            return False
        return self.presigned(in_parts=in_parts)

    def past_down(self, size: int, *, asked_alone: bool) -> bool:
        """Whether an object of this size is read straight from the store; `asked_alone`: its address takes a call."""
        if self._mode == "auto" and size < _SMALL and asked_alone:
            return False
        return self.presigned()

    def presigned(self, *, in_parts: bool = False) -> bool:
        """Whether to go straight to the store; `LakeRefused` where that is demanded and cannot be."""
        if self._mode == "gateway" or (self._mode == "auto" and self._clock() < self._not_before):
            return False
        offer = self._asked()
        offered = offer.single and offer.store == "s3"
        if self._mode == "presigned" and not offered:
            raise LakeRefused(
                f"PERAGO_TRANSFER=presigned, but this lakeFS (store {offer.store!r}) offers no presigned access to an S3 "
                "store; set PERAGO_TRANSFER=auto"
            )
        # A server may offer the one and not the other; the gateway takes what is left.
        return offered and (offer.parts or not in_parts)

    def unreachable(self, problem: StoreUnreachable) -> None:
        """Note that the store cannot be reached; raises it where nothing else is allowed."""
        if self._mode == "presigned":
            raise StoreUnreachable(
                f"{problem}; set PERAGO_TRANSFER=auto to go through lakeFS, or have lakeFS's "
                "blockstore.s3.pre_signed_endpoint name an address that workers reach"
            ) from None
        with self._lock:
            self._not_before = self._clock() + _PATIENCE_SECONDS
            said, self._said = self._said, True
        if not said:
            _log.warning(
                "%s: objects go through lakeFS's gateway instead; to have them go straight to the store, make lakeFS's "
                "blockstore.s3.pre_signed_endpoint an address that workers reach, or set PERAGO_TRANSFER=gateway "
                "to leave it at that",
                problem,
            )

    def _asked(self) -> PresignSupport:
        with self._lock:
            if self._offer is None:
                answer = self._client.call("ask lakeFS for its storage", _config, repeat=Repeat.ALWAYS)
                storage = (answer.get("storage_config") if isinstance(answer, dict) else None) or {}
                self._offer = PresignSupport(
                    single=bool(storage.get("pre_sign_support")),
                    parts=bool(storage.get("pre_sign_multipart_upload")),
                    store=str(storage.get("blockstore_type") or ""),
                )
            return self._offer


def _config(apis: Apis, limit: Timeout) -> Any:
    return apis.config.get_config(_request_timeout=limit)
