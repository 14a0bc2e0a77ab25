"""HTTP requests to an object store at presigned URLs: pooled, with timeouts, and without ever revealing a URL.

Anyone who has a presigned URL can read or write the object until the URL expires.  So no error contains one: errors
name the store's host, the status and S3's error code, and errors from the HTTP library are not chained to them.
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
from perago.lake.lakefs.response_timeouts import BoundedPools
from perago.lake.lakefs.transfer.routing import LOCAL_HOSTS, StoreUnreachable

_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_READ = 1024 * 1024
_PROBE_BYTES = 64 * 1024
_EXPIRED = ("ExpiredToken", "RequestExpired", "RequestTimeTooSkewed")


class UrlRefused(LakeForbidden):
    """The store rejected a presigned URL, for example because it has expired. A new URL may work."""


@dataclass(frozen=True, slots=True)
class Put:
    """The store's response to an upload."""

    etag: str
    encrypted: bool
    """True if the store encrypts with its own key, in which case the ETag is not an MD5."""


class StoreHttp:
    """Reads and writes objects at presigned URLs. Thread-safe and fork-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._pools: dict[str | None, urllib3.PoolManager] = {}
        self._reached: set[str] = set()
        self._owner = os.getpid()

    def get(self, url: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the bytes at a URL: all of them, or from `span[0]` up to but not including `span[1]`."""
        wanted = None if span is None else f"bytes={span[0]}-{span[1] - 1}"
        return b"".join(self._pieces(url, wanted, _READ))

    def stream(self, url: str, start: int, chunk: int) -> Iterator[bytes]:
        """Stream the bytes at a URL from `start` on, in pieces of at most `chunk`."""
        return self._pieces(url, f"bytes={start}-" if start else None, chunk)

    def put(self, url: str, data: bytes, md5: str) -> Put:
        """Send bytes to a URL. The store checks them against their MD5."""
        # S3 rejects bytes that do not match this header, whatever kind of ETag it returns.
        headers = {"Content-MD5": base64.b64encode(bytes.fromhex(md5)).decode()}
        with self._answer("PUT", url, headers, data) as answer:
            answer.drain_conn()
            etag = answer.headers.get("ETag", "").strip('"')
            encrypted = "kms" in answer.headers.get("x-amz-server-side-encryption", "")
        return Put(etag, encrypted)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            pools, self._pools = self._pools, {}
        if self._owner == os.getpid():
            for pool in pools.values():
                pool.clear()

    def _pieces(self, url: str, wanted: str | None, chunk: int) -> Iterator[bytes]:
        """Yield a response body as it arrives. Raises `LakeUnavailable` if it is truncated or takes too long."""
        ends = self._options.clock() + self._options.object_timeout
        with self._answer("GET", url, {"Range": wanted} if wanted else {}, None) as answer:
            if wanted and answer.status != 206:
                raise LakeUnavailable(f"{_store(url)} answered {answer.status} to a request for a part")
            while piece := answer.read1(chunk):
                yield piece
                if self._options.clock() > ends:
                    raise LakeUnavailable(f"{_store(url)} did not send it all in time")
            # http.client detects a truncated body only if it is read in one call.
            if answer.length_remaining:
                raise LakeUnavailable(f"{_store(url)} sent {answer.length_remaining} bytes too few")

    @contextmanager
    def _answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request and yield the response if it is successful. Otherwise raises one of Perago's errors."""
        self._check_reachable(url)
        try:
            answer = self._send(method, url, headers, body)
            try:
                if answer.status >= 300:
                    raise _refusal(url, answer.status, answer.read(_PROBE_BYTES))
                yield answer
            except BaseException:
                # A connection with unread data cannot be reused.
                answer.close()
                raise
            answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise LakeUnavailable(f"{_store(url)} gives no answer: {type(error).__name__}") from None

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        options = self._options
        return self._pool(url).request(
            method,
            url,
            body=body,
            # We need the bytes as stored: neither the store nor a proxy may compress them.
            headers={"Accept-Encoding": "identity", **headers},
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(connect=options.connect_timeout, read=options.read_timeout),
        )

    def _check_reachable(self, url: str) -> None:
        """Check once per store that it responds, because lakeFS may name a host that only lakeFS can reach.

        Raises `StoreUnreachable` if the store does not respond.
        """
        origin = _origin(url)
        if origin in self._reached:
            return
        try:
            self._send("HEAD", f"{origin}/", {}, None).close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise StoreUnreachable(
                f"{_store(url)} cannot be reached from here: {type(error).__name__}"
            ) from None
        self._reached.add(origin)

    def _pool(self, url: str) -> urllib3.PoolManager:
        proxy = _proxy_for(url)
        with self._lock:
            if self._owner != os.getpid():
                # A forked child must not use its parent's sockets.
                self._pools, self._owner = {}, os.getpid()
            if proxy not in self._pools:
                size = self._options.parallel * 2
                self._pools[proxy] = (
                    urllib3.ProxyManager(proxy, maxsize=size) if proxy else BoundedPools(maxsize=size)
                )
            return self._pools[proxy]


def _refusal(url: str, status: int, body: bytes) -> LakeError:
    found = _CODE.search(body)
    code = f" ({found[1].decode()})" if found else ""
    text = f"{_store(url)} answered {status}{code}"
    if status in (401, 403) or (found and found[1].decode() in _EXPIRED):
        return UrlRefused(text)
    if status == 404:
        return LakeNotFound(f"{text}: lakeFS knows the object, its store does not have it")
    return LakeUnavailable(text)


def _proxy_for(url: str) -> str | None:
    """Return the proxy for this URL from the environment, which urllib3 does not read itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOCAL_HOSTS or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _store(url: str) -> str:
    parts = urlsplit(url)
    return f"the object store at {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
