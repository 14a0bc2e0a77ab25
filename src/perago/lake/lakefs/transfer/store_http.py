"""HTTP to an object store at presigned addresses: pooled, bounded in time, and silent about the addresses.

Whoever has an address may read or write the object until it expires, so none of them gets into an error: these
name the store's host, the status and S3's error code, and no error of the HTTP library is chained to them.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import urllib3

from perago.errors import LakeError, LakeForbidden, LakeNotFound, LakeUnavailable
from perago.lake.lakefs.client import Options
from perago.lake.lakefs.response_timeouts import bound_answers
from perago.lake.lakefs.transfer.routing import StoreUnreachable

_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_HERE = ("127.0.0.1", "localhost", "::1")
_READ = 1024 * 1024
_PROBE_BYTES = 64 * 1024
_EXPIRED = ("ExpiredToken", "RequestExpired", "RequestTimeTooSkewed")


class AddressRefused(LakeForbidden):
    """The store does not take an address, or does not take it any more: another one may do."""


@dataclass(frozen=True, slots=True)
class Put:
    """What the store says of bytes that it took."""

    etag: str
    encrypted: bool
    """With a key of the store's own: the ETag is then no MD5."""


class StoreHttp:
    """Gets and puts at presigned addresses; safe for threads, and for a process forked from this one."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pools: dict[str | None, urllib3.PoolManager] = {}
        self._reached: set[str] = set()
        self._owner = os.getpid()

    def get(self, address: str, span: tuple[int, int] | None = None) -> bytes:
        """The bytes at an address, all of them or from `span[0]` up to, not including, `span[1]`."""
        wanted = None if span is None else f"bytes={span[0]}-{span[1] - 1}"
        return b"".join(self._pieces(address, wanted, _READ))

    def stream(self, address: str, start: int, chunk: int) -> Iterator[bytes]:
        """The bytes at an address from `start` on, in pieces of at most `chunk`."""
        return self._pieces(address, f"bytes={start}-" if start else None, chunk)

    def put(self, address: str, data: bytes, md5: str) -> Put:
        """Send bytes to an address; the store compares them with their MD5."""
        # S3 refuses bytes that do not have the MD5 of this header, whatever its ETag is.
        headers = {"Content-MD5": base64.b64encode(bytes.fromhex(md5)).decode()}
        with self._answer("PUT", address, headers, data) as answer:
            answer.drain_conn()
            etag = answer.headers.get("ETag", "").strip('"')
            encrypted = "kms" in answer.headers.get("x-amz-server-side-encryption", "")
        return Put(etag, encrypted)

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            pools, self._pools = self._pools, {}
        if self._owner == os.getpid():
            for pool in pools.values():
                pool.clear()

    def _pieces(self, address: str, wanted: str | None, chunk: int) -> Iterator[bytes]:
        """A body as it comes; a whole body that is cut short is an error, as is one that takes too long."""
        ends = self._options.clock() + self._options.object_timeout
        with self._answer("GET", address, {"Range": wanted} if wanted else {}, None) as answer:
            if wanted and answer.status != 206:
                raise LakeUnavailable(f"{_store(address)} answered {answer.status} to a request for a part")
            while piece := answer.read1(chunk):
                yield piece
                if self._options.clock() > ends:
                    raise LakeUnavailable(f"{_store(address)} did not send it all in time")
            # http.client notices the missing rest of a body only when all of it is asked for at once.
            if answer.length_remaining:
                raise LakeUnavailable(f"{_store(address)} sent {answer.length_remaining} bytes too few")

    @contextmanager
    def _answer(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """A good answer, whose connection is free again at the end; anything else is an error of ours."""
        self._reach(address)
        try:
            answer = self._send(method, address, headers, body)
            try:
                if answer.status >= 300:
                    raise _refusal(address, answer.status, answer.read(_PROBE_BYTES))
                yield answer
            except BaseException:
                # What was not read to its end cannot be used again.
                answer.close()
                raise
            answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise LakeUnavailable(f"{_store(address)} gives no answer: {type(error).__name__}") from None

    def _send(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        options = self._options
        return self._pool(address).request(
            method,
            address,
            body=body,
            # What is stored is what is wanted: a store or a proxy must not pack it.
            headers={"Accept-Encoding": "identity", **headers},
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(connect=options.connect_timeout, read=options.read_timeout),
        )

    def _reach(self, address: str) -> None:
        """See once for each store that something answers there: lakeFS may name a host that only it can reach."""
        origin = _origin(address)
        if origin in self._reached:
            return
        try:
            self._send("HEAD", f"{origin}/", {}, None).close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StoreUnreachable(
                f"{_store(address)} cannot be reached from here: {type(error).__name__}"
            ) from None
        self._reached.add(origin)

    def _pool(self, address: str) -> urllib3.PoolManager:
        proxy = _proxy_for(address)
        with self._lock:
            if self._owner != os.getpid():
                # A forked child must not write into its parent's sockets.
                self._pools, self._owner = {}, os.getpid()
            if proxy not in self._pools:
                made = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
                made.connection_pool_kw["maxsize"] = self._options.parallel * 2
                if not proxy:
                    bound_answers(made)
                self._pools[proxy] = made
            return self._pools[proxy]


def _refusal(address: str, status: int, body: bytes) -> LakeError:
    found = _CODE.search(body)
    code = f" ({found[1].decode()})" if found else ""
    text = f"{_store(address)} answered {status}{code}"
    if status in (401, 403) or (found and found[1].decode() in _EXPIRED):
        return AddressRefused(text)
    if status == 404:
        return LakeNotFound(f"{text}: lakeFS knows the object, its store does not have it")
    return LakeUnavailable(text)


def _proxy_for(address: str) -> str | None:
    """The proxy that the environment names for this address; the library does not look there by itself."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in _HERE or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _store(address: str) -> str:
    parts = urlsplit(address)
    return f"the object store at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
