"""Which way bytes go: what the setting says, what the server offers, and what can be reached from here.

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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from perago.errors import LakeRefused
from perago.lake.lakefs.client import Apis, LakeFSClient, Repeat, Timeout
from perago.lake.lakefs.transfer.ways import StoreUnreachable

TransferMode = Literal["auto", "gateway", "presigned"]

_PATIENCE_SECONDS = 600.0
_SMALL = 1024 * 1024
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server offers: presigned addresses, and for uploads in parts too."""

    single: bool
    parts: bool
    store: str


class Choice:
    """The way of the next transfer; safe for threads."""

    def __init__(self, mode: TransferMode, client: LakeFSClient, clock: Callable[[], float]) -> None:
        self._mode = mode
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._offer: Offer | None = None
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

    def _asked(self) -> Offer:
        with self._lock:
            if self._offer is None:
                answer = self._client.call("ask lakeFS for its storage", _config, repeat=Repeat.ALWAYS)
                storage = (answer.get("storage_config") if isinstance(answer, dict) else None) or {}
                self._offer = Offer(
                    single=bool(storage.get("pre_sign_support")),
                    parts=bool(storage.get("pre_sign_multipart_upload")),
                    store=str(storage.get("blockstore_type") or ""),
                )
            return self._offer


def _config(apis: Apis, limit: Timeout) -> Any:
    return apis.config.get_config(_request_timeout=limit)
