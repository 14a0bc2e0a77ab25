"""Calls to Conductor: the official client's HTTP layer and token handling, over our pool, time-outs and errors.

By default the client sends with httpx, which takes twice the CPU for each of the six calls that a worker makes for an
attempt; so `Connection` puts urllib3's pool in its place.  It raises httpx's errors, the only ones the client knows.  If a
proxy is set, httpx itself is used, which supports all of them.

Every call has a finite time-out to connect and to answer.  Only calls that may safely happen twice are retried
(`repeat=True`), except that a GET whose connection broke is sent once more on a new one.  For a poll that is no more than
the poll loop would do: the tasks of the lost answer stay IN_PROGRESS without a worker until their lease expires.
The client's typed layer is not used: it knows fewer fields than the server, and the port speaks plain JSON.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, ReadTimeoutError

from perago.errors import OrchestratorUnavailable
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.errors import translated
from perago.orchestrator.conductor.sdk import (
    ApiClient,
    ApiException,
    AuthenticationSettings,
    AuthorizationException,
    Configuration,
    httpx,
)
from perago.orchestrator.conductor.wire import Request
from perago.protocol.backoff import Backoff

TRIES = 3
BACKOFF = Backoff(0.1, jitter=(0.5, 1.5))
_CONNECTIONS = 50
# Below the server's own keep-alive (60 s), so that it does not close a connection just as we use it.
_POOL = httpx.Limits(max_connections=100, max_keepalive_connections=_CONNECTIONS, keepalive_expiry=30)


def open_connection(url: str, *, connect_timeout: float, read_timeout: float) -> Any:
    """Return a connection to the server at `url`, usable like an `httpx.Client`."""
    timeout = httpx.Timeout(read_timeout, connect=connect_timeout)
    if _proxy_of(url):
        return httpx.Client(limits=_POOL, timeout=timeout)
    return Connection(timeout, secure=urlsplit(url).scheme == "https")


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment sets for `url`, or None."""
    parts = urlsplit(url)
    known = urllib.request.getproxies()
    if parts.hostname and urllib.request.proxy_bypass(parts.hostname):
        return None
    return known.get(parts.scheme) or known.get("all")


class Answer:
    """The part of `httpx.Response` that the client reads and writes."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str], data: bytes) -> None:
        self.status_code = status
        self.reason_phrase = reason
        self.headers = headers
        self.text = data.decode("utf-8", "replace")
        self.is_success = 200 <= status <= 299
        self.stream: object = None


class Connection:
    """The part of `httpx.Client` that the client uses, over urllib3; thread-safe."""

    is_closed = False

    def __init__(self, timeout: Any, *, secure: bool) -> None:
        # Trust the same certificates as httpx, including SSL_CERT_FILE.
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
        """Send a request and read the whole answer."""
        address = f"{url}?{urlencode(params)}" if params else url
        body = content.encode() if isinstance(content, str) else content
        given = timeout if isinstance(timeout, httpx.Timeout) else self._timeout
        for may_retry in (method == "GET", False):
            try:
                return self._once(method, address, body, given, headers or {})
            except (NewConnectionError, ConnectTimeoutError) as error:
                raise httpx.ConnectError(str(error)) from error
            except ReadTimeoutError as error:
                raise httpx.ReadTimeout(str(error)) from error
            except HTTPError as error:
                if not may_retry:
                    raise httpx.NetworkError(str(error)) from error
        raise AssertionError("unreachable")

    def post(self, url: str, *, content: bytes, headers: Mapping[str, str]) -> Answer:
        """Send raw bytes."""
        return self.request("POST", url, content=content, headers=headers)

    def close(self) -> None:
        """Close the connections."""
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


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of Conductor's API, and the keys to exchange for a token if it requires one."""

    url: str
    auth_key: str | None = None
    auth_secret: str | None = field(default=None, repr=False)


class ConductorApi:
    """Calls one Conductor server; thread-safe."""

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout: float,
        read_timeout: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = wire.address(address.url)
        self._timeouts = (connect_timeout, read_timeout)
        self._sleep = sleep
        self._http = open_connection(address.url, connect_timeout=connect_timeout, read_timeout=read_timeout)
        self._keys = _keys(address)
        self._api = ApiClient(_configuration(address.url, self._keys, self._http))

    def call(
        self, step: str, request: Request, *, read_timeout: float | None = None, repeat: bool = False
    ) -> Any:
        """Call the server and return its answer: JSON, or else text.  `repeat` retries a call that may happen twice."""
        timeouts = (self._timeouts[0], read_timeout or self._timeouts[1])

        def once() -> Any:
            with translated(step, self._address), self._logged_in():
                return self._api.call_api(
                    request.path,
                    request.method,
                    query_params=list(request.query.items()),
                    body=request.body,
                    response_type="object",
                    _return_http_data_only=True,
                    _request_timeout=timeouts,
                )

        return self.persist(once) if repeat else once()

    def post_text(self, step: str, path: str, text: str) -> None:
        """Send plain text; the client itself would send it as a broken JSON string."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        with translated(step, self._address), self._logged_in():
            headers |= (self._api.get_authentication_headers() or {}).get("header", {})
            try:
                answer = self._http.post(
                    self._api.configuration.host + path,
                    content=text.encode("utf-8", "replace"),
                    headers=headers,
                )
            except httpx.HTTPError as error:
                raise ApiException(status=0, reason=f"{type(error).__name__}: {error}") from error
            if not answer.is_success:
                raise ApiException(status=answer.status_code, reason=answer.reason_phrase, body=answer.text)

    def close(self) -> None:
        """Close the connections."""
        # With httpx, the client replaces a broken pool by a new one, so close both.
        self._api.rest_client.connection.close()
        self._http.close()

    @contextmanager
    def _logged_in(self) -> Iterator[None]:
        """Fetch the first token if the server was unreachable when the client was created."""
        configuration = self._api.configuration
        if configuration.authentication_settings is not None and configuration.AUTH_TOKEN is None:
            self._api.force_refresh_auth_token()
        try:
            yield
        except AuthorizationException:
            # On any 404 to its login the client assumes a server without logins and drops its keys, even if a proxy sent
            # it while Conductor restarts.  A server that asks for a token has logins, so restore the keys.
            if configuration.authentication_settings is None:
                configuration.authentication_settings = self._keys
            raise

    def persist(self, once: Callable[[], Any]) -> Any:
        """Make a call that may happen twice; up to three tries while the server is unavailable."""
        for failures in range(1, TRIES):
            try:
                return once()
            except OrchestratorUnavailable:
                self._sleep(BACKOFF.delay(failures))
        return once()


def _configuration(url: str, keys: Any, http: Any) -> Any:
    configuration = Configuration(server_api_url=url.rstrip("/"))
    configuration.http_connection = http
    # Set even if None: otherwise the client reads the environment, which is the settings' job.
    configuration.authentication_settings = keys
    return configuration


def _keys(address: Address) -> Any:
    if not address.auth_key or not address.auth_secret:
        return None
    return AuthenticationSettings(key_id=address.auth_key, key_secret=address.auth_secret)
