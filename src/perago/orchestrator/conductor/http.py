"""Calls to Conductor over the official client's HTTP layer: its token handling, our pool, time-outs and errors.

The rules: every call has a finite time-out to connect and to answer, and only calls that may safely happen twice are
tried again (`repeat=True`).  The client's typed layer is not used: it knows fewer fields than the server, and plain
JSON is what the port speaks.

A GET is sent once more on a fresh connection when the old one breaks (`connection.py`).  For a poll that is no more
than the poll loop would do: the tasks of the lost answer stay IN_PROGRESS with nobody, until their lease runs out.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from perago.errors import OrchestratorUnavailable
from perago.orchestrator.conductor import wire
from perago.orchestrator.conductor.connection import open_connection
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

TRIES = 3
FIRST_DELAY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Address:
    """Where Conductor's API is, and the keys to trade for a token where it wants one."""

    url: str
    auth_key: str | None = None
    auth_secret: str | None = field(default=None, repr=False)


class ConductorApi:
    """One server, called from any thread."""

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
        """The answer as JSON, or as text where it is none; `repeat` where the call may happen twice."""
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
        """Send text as it is: the client's own way would send it as half a JSON string."""
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
        """Give the connections back."""
        # Where httpx is used, the client puts a pool of its own in place of a broken one.
        self._api.rest_client.connection.close()
        self._http.close()

    @contextmanager
    def _logged_in(self) -> Iterator[None]:
        """Get the first token, where the server was not there for it when the client was made."""
        configuration = self._api.configuration
        if configuration.authentication_settings is not None and configuration.AUTH_TOKEN is None:
            self._api.force_refresh_auth_token()
        try:
            yield
        except AuthorizationException:
            # The client takes any 404 to its login for a server without logins, also that of a proxy whose Conductor
            # restarts, and forgets its keys.  Who wants a token has logins.
            if configuration.authentication_settings is None:
                configuration.authentication_settings = self._keys
            raise

    def persist(self, once: Callable[[], Any]) -> Any:
        """Try a call that may happen twice again while there is no answer, a few times."""
        for turn in range(TRIES - 1):
            try:
                return once()
            except OrchestratorUnavailable:
                # Jitter, so that workers that lost the server together do not come back together.
                self._sleep(FIRST_DELAY_SECONDS * 2**turn * random.uniform(0.5, 1.5))
        return once()


def _configuration(url: str, keys: Any, http: Any) -> Any:
    configuration = Configuration(server_api_url=url.rstrip("/"))
    configuration.http_connection = http
    # Said outright: by itself the client would read the environment, which is the settings' job.
    configuration.authentication_settings = keys
    return configuration


def _keys(address: Address) -> Any:
    if not address.auth_key or not address.auth_secret:
        return None
    return AuthenticationSettings(key_id=address.auth_key, key_secret=address.auth_secret)
