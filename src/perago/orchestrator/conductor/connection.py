"""How calls to Conductor travel: over urllib3's pool, in the form in which the official client takes a connection.

By itself the client sends with httpx, which takes twice the CPU for each of the six calls that a worker makes for an
attempt.  The rules: an error is one of httpx's, since those are what the client knows; a GET whose connection broke is
sent once more on a new one, and nothing else ever is; where a proxy is set, httpx is used, which knows all about them.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from perago.orchestrator.conductor.sdk import httpx

_CONNECTIONS = 50
# Below the server's own keep-alive (60 s), so that it does not close a connection just as we use it.
_POOL = httpx.Limits(max_connections=100, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=30)


def open_connection(url: str, *, connect_timeout: float, read_timeout: float) -> Any:
    """A connection to the server of that address, as `httpx.Client` is one."""
    timeout = httpx.Timeout(read_timeout, connect=connect_timeout)
    if _proxy_of(url):
        return httpx.Client(limits=_POOL, timeout=timeout)
    return Connection(timeout, secure=urlsplit(url).scheme == "https")


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment sets for an address."""
    parts = urlsplit(url)
    known = urllib.request.getproxies()
    if parts.hostname and urllib.request.proxy_bypass(parts.hostname):
        return None
    return known.get(parts.scheme) or known.get("all")


class Answer:
    """What the client reads of an answer; it writes into one, too."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str], data: bytes) -> None:
        self.status_code = status
        self.reason_phrase = reason
        self.headers = headers
        self.text = data.decode("utf-8", "replace")
        self.is_success = 200 <= status <= 299
        self.stream: object = None


class Connection:
    """What the client uses of `httpx.Client`; safe for threads."""

    is_closed = False

    def __init__(self, timeout: Any, *, secure: bool) -> None:
        # The certificates that httpx trusts, those of SSL_CERT_FILE included.
        trusted = {"ssl_context": httpx.create_ssl_context()} if secure else {}
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=False, **trusted)
        self._timeout = timeout

    def request(
        self,
        method: str,
        url: str,
        *,
        content: str | bytes | None = None,
        params: Sequence[tuple[str, Any]] | None = None,
        timeout: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and read all of its answer."""
        address = f"{url}?{urlencode(params)}" if params else url
        body = content.encode() if isinstance(content, str) else content
        given = timeout if isinstance(timeout, httpx.Timeout) else self._timeout
        for again in (method == "GET", False):
            try:
                return self._once(method, address, body, given, headers or {})
            except (NewConnectionError, ConnectTimeoutError) as error:
                raise httpx.ConnectError(str(error)) from error
            except ReadTimeoutError as error:
                raise httpx.ReadTimeout(str(error)) from error
            except HTTPError as error:
                if not again:
                    raise httpx.NetworkError(str(error)) from error
        raise AssertionError("unreachable")

    def post(self, url: str, *, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Send bytes as they are."""
        return self.request("POST", url, content=content, headers=headers)

    def close(self) -> None:
        """Give the connections back."""
        self._pool.clear()

    def _once(
        self, method: str, url: str, body: bytes | None, timeout: Any, headers: Mapping[str, str]
    ) -> Answer:
        answer = self._pool.urlopen(
            method,
            url,
            body=body,
            headers=dict(headers),
            timeout=urllib3.Timeout(connect=timeout.connect, read=timeout.read),
            redirect=False,
        )
        return Answer(answer.status, answer.reason or "", answer.headers, answer.data)
