"""Calls Conductor with urllib3: JSON in and out, a token if the server requires one, and finite timeouts.

Perago has its own client because the official one takes longer to import, changes how the process starts child processes,
and uses httpx, which takes twice the CPU time per call (decisions 0028 and 0040).

Only calls that are safe to repeat are retried (`repeat=True`).  There is one exception: a GET whose connection broke is
sent once more on a new connection.  For a poll, this does no harm, because the poll loop would poll again in any case.
Either way, the tasks in the lost response stay IN_PROGRESS without a worker until their lease expires.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import ssl
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import certifi
import urllib3
from urllib3.exceptions import HTTPError

from perago.errors import OrchestratorError, OrchestratorUnavailable
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.errors import StatusError, translated, was_broken
from perago.orchestrator.conductor.wire import Request
from perago.protocol.backoff import Backoff

TRIES = 3
BACKOFF = Backoff(0.1, jitter=(0.5, 1.5))
TOKEN_SECONDS = 45 * 60
"""Age at which a token is renewed, as in the official client."""
_CONNECTIONS = 50
_JSON = {"Content-Type": "application/json"}
_REFUSED = (401, 403)
_RENEWABLE = ("EXPIRED_TOKEN", "INVALID_TOKEN")

log = logging.getLogger("perago.orchestrator.conductor")


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of Conductor's API, and the keys to exchange for a token if the server requires one."""

    url: str
    auth_key: str | None = None
    auth_secret: str | None = field(default=None, repr=False)


class Connection:
    """Sends requests to one server over a pool of connections; thread-safe.

    A proxy set in the environment is used unless NO_PROXY names the server.  Trusted certificates come from
    `SSL_CERT_FILE` or `SSL_CERT_DIR`, else from certifi.
    """

    def __init__(self, url: str, *, connect_timeout: float, read_timeout: float) -> None:
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._headers = {"User-Agent": "perago", "Accept-Encoding": "gzip", **_basic_auth(parts.netloc)}
        self._timeouts = (connect_timeout, read_timeout)
        options: dict[str, Any] = {"maxsize": _CONNECTIONS, "retries": False}
        if parts.scheme == "https":
            options["ssl_context"] = _trusted()
        proxy = proxy_of(url)
        self._pools = _through(proxy, options) if proxy else urllib3.PoolManager(**options)

    def send(
        self,
        method: str,
        target: str,
        content: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        read_timeout: float | None = None,
    ) -> str:
        """Send a request and return the text of the response.

        Raises `StatusError` if the request does not succeed, and urllib3's `HTTPError` if there is no response.
        """
        connect, read = self._timeouts
        limit = urllib3.Timeout(connect=connect, read=read_timeout or read)
        try:
            return self._once(method, target, content, headers or {}, limit)
        except HTTPError as error:
            if method != "GET" or not was_broken(error):
                raise
        return self._once(method, target, content, headers or {}, limit)

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()

    def _once(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        limit: urllib3.Timeout,
    ) -> str:
        answer = self._pools.urlopen(
            method,
            self._base + target,
            body=content,
            headers={**self._headers, **headers},
            timeout=limit,
            redirect=False,
        )
        text = answer.data.decode("utf-8", "replace")
        if not 200 <= answer.status <= 299:
            raise StatusError(answer.status, answer.reason or "", text)
        return text


class Login:
    """Exchanges the keys for a token and renews it.  Thread-safe: at worst, two threads log in at once.

    A failed login is logged, and calls are sent without a token; the server's responses then show what is wrong.  A
    404 means that the server has no logins, like Conductor OSS.  That is assumed only until the server rejects a call,
    because a proxy also returns 404 while Conductor restarts.
    """

    def __init__(self, address: Address, connection: Connection, clock: Callable[[], float]) -> None:
        self._keys = (
            {"keyId": address.auth_key, "keySecret": address.auth_secret}
            if address.auth_key and address.auth_secret
            else None
        )
        self._connection = connection
        self._address = wire.address(address.url)
        self._clock = clock
        self._wanted = self._keys is not None
        self._token: str | None = None
        self._renew_at = 0.0
        if self._wanted:
            self.renew()

    def headers(self) -> dict[str, str]:
        """Return the headers that authorize a call.  Renews the token first if there is none or if it is too old."""
        if self._wanted and (self._token is None or self._clock() >= self._renew_at):
            self.renew()
        token = self._token
        return {} if token is None else {"X-Authorization": token}

    def renew(self) -> bool:
        """Exchange the keys for a new token.  Returns whether there is a token now."""
        if not self._wanted:
            return False
        token = None
        try:
            with translated("log in", self._address):
                token = self._exchange()
        except OrchestratorError as error:
            log.warning("%s; calls are sent without a token", error)
        self._token, self._renew_at = token, self._clock() + TOKEN_SECONDS
        return token is not None

    def after_refusal(self, error: StatusError) -> bool:
        """Handle the rejection of a call.  Returns whether to send the call again, with a new token."""
        if self._keys is None:
            return False
        # A server that rejects calls has logins, whatever its response to the last login was.
        self._wanted = True
        return error.field("error") in _RENEWABLE and self.renew()

    def _exchange(self) -> str | None:
        content = json.dumps(self._keys).encode()
        try:
            answer = self._connection.send("POST", "/token", content, headers=_JSON)
        except StatusError as error:
            if error.status != 404:
                raise
            self._wanted = False
            return None
        found = _parsed(answer)
        token = found.get("token") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
            # Do not quote the response: it might contain most of a token.
            raise OrchestratorUnavailable(
                "cannot log in: the answer holds no token, so it is not Conductor's; "
                "check CONDUCTOR_SERVER_URL, it ends in /api"
            )
        return token


class ConductorApi:
    """Calls one Conductor server; thread-safe."""

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout: float,
        read_timeout: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = wire.address(address.url)
        self._sleep = sleep
        self._connection = Connection(address.url, connect_timeout=connect_timeout, read_timeout=read_timeout)
        self._login = Login(address, self._connection, clock)

    def call(
        self, step: str, request: Request, *, read_timeout: float | None = None, repeat: bool = False
    ) -> Any:
        """Call the server and return its response, parsed if it is JSON and as text otherwise.

        `repeat` allows retries, for a call that is safe to repeat.
        """
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        content, headers = None, {}
        if request.method != "GET":
            # Conductor requires a JSON body even if there is nothing to send.
            content = json.dumps({} if request.body is None else request.body).encode()
            headers = _JSON

        def once() -> Any:
            with translated(step, self._address):
                return _parsed(self._send(request.method, target, content, headers, read_timeout))

        return self.persist(once) if repeat else once()

    def post_text(self, step: str, path: str, text: str) -> None:
        """Send plain text in a POST request."""
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        with translated(step, self._address):
            self._send("POST", path, text.encode("utf-8", "replace"), headers)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def persist(self, once: Callable[[], Any]) -> Any:
        """Make a call that is safe to repeat, with up to three tries while the server is unavailable."""
        for failures in range(1, TRIES):
            try:
                return once()
            except OrchestratorUnavailable:
                self._sleep(BACKOFF.delay(failures))
        return once()

    def _send(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        read_timeout: float | None = None,
    ) -> str:
        """Send a call with the token.  If the server says that the token is no longer valid, retry once with a new one."""

        def once() -> str:
            sent = {**headers, **self._login.headers()}
            return self._connection.send(method, target, content, headers=sent, read_timeout=read_timeout)

        try:
            return once()
        except StatusError as error:
            if error.status not in _REFUSED or not self._login.after_refusal(error):
                raise
        return once()


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment sets for `url`, or None."""
    parts = urlsplit(url)
    known = urllib.request.getproxies()
    if parts.hostname and urllib.request.proxy_bypass(parts.hostname):
        return None
    found = known.get(parts.scheme) or known.get("all")
    return found if not found or "://" in found else f"http://{found}"


def _through(proxy: str, options: Mapping[str, Any]) -> urllib3.PoolManager:
    """Return connection pools that go through a proxy."""
    parts = urlsplit(proxy)
    if parts.scheme.startswith("socks"):
        if importlib.util.find_spec("socks") is None:
            raise OrchestratorUnavailable(
                f"cannot use the proxy {wire.address(proxy)}: SOCKS needs PySocks; install urllib3[socks]"
            )
        from urllib3.contrib.socks import SOCKSProxyManager

        return SOCKSProxyManager(proxy, **options)
    if parts.scheme == "https":
        options = {**options, "proxy_ssl_context": _trusted()}
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
    return urllib3.ProxyManager(proxy, proxy_headers=urllib3.make_headers(proxy_basic_auth=login), **options)


def _trusted() -> ssl.SSLContext:
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    return ssl.create_default_context(cafile=certifi.where())


def _basic_auth(netloc: str) -> dict[str, str]:
    """Return the basic-auth header for credentials in the server's URL, if there are any."""
    login = netloc.rpartition("@")[0]
    return dict(urllib3.make_headers(basic_auth=login)) if login else {}


def _parsed(answer: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return answer
