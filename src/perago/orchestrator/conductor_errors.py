"""The Conductor client's errors, turned into ours by one table.

    answer                                          error
    none (refused, cut, timed out), or 408,
      425, 429, 5xx: it says nothing                OrchestratorUnavailable: may have happened
    404                                             OrchestratorNotFound
    401, 403                                        OrchestratorRefused, naming the settings for the keys
    anything else that is not a success             OrchestratorRefused: trying again is no use

Conductor says 500 to a body it cannot parse too, so an OrchestratorUnavailable may stay one however often it is tried.
Texts name the step and what the server said.  They never hold a header: that is where the token travels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from conductor.client.exceptions.api_error import APIError
from conductor.client.http import async_rest, rest

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)

SDK_ERRORS = (rest.ApiException, async_rest.ApiException, APIError)
_SAYS_NOTHING = frozenset({408, 425, 429})
_LOGIN = frozenset({401, 403})


@contextmanager
def translated(step: str) -> Iterator[None]:
    """Raise one of our errors, led by `step`, for one of the client's."""
    try:
        yield
    except SDK_ERRORS as error:
        raise our_error(step, error) from error


def our_error(step: str, error: Exception) -> OrchestratorError:
    """What the client's error means to us."""
    status = _status(error)
    text = f"cannot {step}: {_said(error, status)}"
    if status == 404:
        return OrchestratorNotFound(text)
    if status == 0 or status >= 500 or status in _SAYS_NOTHING:
        return OrchestratorUnavailable(text)
    if status in _LOGIN:
        return OrchestratorRefused(f"{text}; check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET")
    return OrchestratorRefused(text)


def _status(error: Exception) -> int:
    """The HTTP status, or 0 where there was no answer."""
    # APIError keeps its code in args alone; the others have it as an attribute.
    found = getattr(error, "status", None) or (error.args[0] if error.args else None)
    try:
        return int(getattr(found, "value", found) or 0)
    except (TypeError, ValueError):
        return 0


def _said(error: Exception, status: int) -> str:
    """What the server said, on one line; what the connection said where the server was silent."""
    reason = getattr(error, "reason", None) or (error.args[1] if len(error.args) > 1 else "") or "no answer"
    if not status:
        return " ".join(str(reason).split())
    try:
        body = json.loads(getattr(error, "body", None) or "")
        found = [str(item["message"]) for item in body.get("validationErrors") or [body]]
    except (ValueError, KeyError, TypeError, AttributeError):
        found = [str(reason)]
    return f"{status} {' '.join('; '.join(found).split())}"
