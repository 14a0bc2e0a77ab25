"""Translates the Conductor client's errors into Perago's, by one table.

    answer                                              error
    400, 413                                            OrchestratorRefused: retrying is useless
    404 in Conductor's own JSON, about the request      OrchestratorNotFound
    anything else: no answer (refused, cut, timed out),
      5xx, 401, 403, a 404 from somewhere else          OrchestratorUnavailable: retry; the call may have taken effect

Only Conductor itself can say that a task is gone.  While it restarts, the proxy in front of it answers 404, a login page
302, a gateway 403; taking that for an answer about the task would throw away finished work.  Conductor's own answer
(server 3.32.3) is `{"status": 404, "message": …, "instance": …, "retryable": …}`.  It uses the same form, with Spring's
text, for a path that it does not serve, and that means a wrong CONDUCTOR_SERVER_URL.

Conductor also answers 500 to a body it cannot parse, so retrying an OrchestratorUnavailable may never succeed.
Messages name the step and the server's text, or its address if there was no answer.  They never include a header:
headers carry the token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.orchestrator.conductor import sdk

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


@contextmanager
def translated(step: str, address: str = "") -> Iterator[None]:
    """Translate the client's errors raised in the block; `step` starts the message, `address` is the server's."""
    try:
        yield
    except sdk.ERRORS as error:
        raise our_error(step, error, address) from error


def our_error(step: str, error: Exception, address: str = "") -> OrchestratorError:
    """Return the Perago error for an error of the client."""
    status = _status(error)
    if not status and address:
        text = f"Conductor at {address} gives no answer: {_message(error, status)}"
        return OrchestratorUnavailable(f"cannot {step}: {text}{_NO_ANSWER}")
    text = f"cannot {step}: {_message(error, status)}"
    if status in _REFUSED:
        return OrchestratorRefused(text)
    if status == 404 and _is_from_conductor(error):
        return OrchestratorNotFound(text)
    return OrchestratorUnavailable(f"{text}{_HINTS.get(status, '')}")


def _is_from_conductor(error: Exception) -> bool:
    """Return whether a 404 is Conductor's own answer about the requested object."""
    body = _json(error)
    if body is None or not body.keys() >= _OWN_FIELDS or body["status"] != 404:
        return False
    return not str(body["message"]).startswith(_NO_SUCH_PATH)


def _status(error: Exception) -> int:
    """Return the HTTP status, or 0 if there was no answer."""
    # APIError has its code only in args; the others have it as an attribute.
    found = getattr(error, "status", None) or (error.args[0] if error.args else None)
    try:
        return int(getattr(found, "value", found) or 0)
    except (TypeError, ValueError):
        return 0


def _message(error: Exception, status: int) -> str:
    """Return the server's message on one line, or the connection's error if there was no answer."""
    reason = getattr(error, "reason", None) or (error.args[1] if len(error.args) > 1 else "") or "no answer"
    if not status:
        return " ".join(str(reason).split())
    body = _json(error) or {}
    try:
        found = [str(item["message"]) for item in body.get("validationErrors") or [body]]
    except (KeyError, TypeError):
        found = [str(reason)]
    return f"{status} {' '.join('; '.join(found).split())}"


def _json(error: Exception) -> dict[str, Any] | None:
    """Return the answer's body if it is a JSON object, else None."""
    try:
        found = json.loads(getattr(error, "body", None) or "")
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None
