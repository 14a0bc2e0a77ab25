"""Translates failed calls to Conductor into Perago's errors, using one table.

    answer                                              error
    400, 413                                            OrchestratorRefused: retrying is useless
    404 in Conductor's own JSON, about the request      OrchestratorNotFound
    anything else: no answer (connection refused,
      broken, timed out), 5xx, 401, 403, a 404 that
      is not Conductor's                                OrchestratorUnavailable: retry; the call may have taken effect

Only Conductor itself can say that a task is gone.  While it restarts, a proxy in front of it may return 404, a login
page 302 and a gateway 403.  Treating such a response as a statement about the task would throw away finished work.
Conductor's own response (server 3.32.3) is `{"status": 404, "message": …, "instance": …, "retryable": …}`.  It uses the
same format, with Spring's message, for a path that it does not serve; in that case, CONDUCTOR_SERVER_URL is wrong.

Conductor also returns 500 for a request body that it cannot parse, so retrying an OrchestratorUnavailable may never
succeed.  Messages contain the step and the server's text, or the server's address if there was no response.  They never
include a header, because headers carry the token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
)

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)

_REFUSED = frozenset({400, 413})
_OWN_FIELDS = frozenset({"status", "message", "instance", "retryable"})
_NO_SUCH_PATH = "No static resource"
_KEYS = "; check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
_NO_ANSWER = "; check CONDUCTOR_SERVER_URL, and that Conductor is up"
_HINTS = {
    401: _KEYS,
    403: _KEYS,
    404: "; this is not Conductor's answer: check CONDUCTOR_SERVER_URL, it ends in /api, and what is in between",
}


# Subclasses come before their bases.
_BROKEN = "Connection broken"
_CONNECTIONS: tuple[tuple[type[HTTPError], str], ...] = (
    (NewConnectionError, "Connection error"),
    (ConnectTimeoutError, "Connection error"),
    (ProxyError, "Connection error"),
    (ReadTimeoutError, "Request timeout"),
    (HTTPError, _BROKEN),
)


class StatusError(Exception):
    """A response with an unsuccessful status.  `body` is its text, and `reason` is its reason phrase."""

    def __init__(self, status: int, reason: str = "", body: str = "") -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.body = body

    def json(self) -> dict[str, Any]:
        """Return the body if it is a JSON object, else an empty dict."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def field(self, name: str) -> object:
        """Return a field of the JSON body, or None if there is no such field."""
        return self.json().get(name)


@contextmanager
def translated(step: str, address: str = "") -> Iterator[None]:
    """Translate errors raised by calls in the block.  `step` and the server's `address` appear in the error message."""
    try:
        yield
    except (StatusError, HTTPError) as error:
        raise our_error(step, error, address) from error


def our_error(step: str, error: StatusError | HTTPError, address: str = "") -> OrchestratorError:
    """Return the Perago error for an unsuccessful response, or for a call that got no response."""
    if isinstance(error, HTTPError):
        at = f" at {address}" if address else ""
        text = f"cannot {step}: Conductor{at} gives no answer: {_kind(error)}: {' '.join(str(error).split())}"
        return OrchestratorUnavailable(f"{text}{_NO_ANSWER}")
    text = f"cannot {step}: {_message(error)}"
    if error.status in _REFUSED:
        return OrchestratorRefused(text)
    if error.status == 404 and _is_from_conductor(error):
        return OrchestratorNotFound(text)
    return OrchestratorUnavailable(f"{text}{_HINTS.get(error.status, '')}")


def was_broken(error: HTTPError) -> bool:
    """Return whether an established connection broke.  A read timeout does not count as broken."""
    return _kind(error) == _BROKEN


def is_missing_path(error: OrchestratorError) -> bool:
    """Return whether Conductor does not serve the path of the call, although it serves the API."""
    cause = error.__cause__
    return isinstance(cause, StatusError) and str(cause.field("message")).startswith(f"{_NO_SUCH_PATH} api/")


def is_internal_error(error: OrchestratorError) -> bool:
    """Return whether Conductor answered that it has failed (500)."""
    cause = error.__cause__
    return isinstance(cause, StatusError) and cause.status == HTTPStatus.INTERNAL_SERVER_ERROR


def _kind(error: HTTPError) -> str:
    return next(text for raised, text in _CONNECTIONS if isinstance(error, raised))


def _is_from_conductor(error: StatusError) -> bool:
    """Return whether a 404 is Conductor's own response about the requested object."""
    body = error.json()
    if not body.keys() >= _OWN_FIELDS or body["status"] != 404:
        return False
    return not str(body["message"]).startswith(_NO_SUCH_PATH)


def _message(error: StatusError) -> str:
    """Return the status and the server's message on one line."""
    body = error.json()
    try:
        found = [str(item["message"]) for item in body.get("validationErrors") or [body]]
    except (KeyError, TypeError):
        found = [error.reason or "no reason given"]
    return f"{error.status} {' '.join('; '.join(found).split())}"
