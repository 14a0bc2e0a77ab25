"""The Conductor client's errors, turned into ours by one table.

    answer                                              error
    400, 413                                            OrchestratorRefused: trying again is no use
    404 in Conductor's own JSON, about what was asked   OrchestratorNotFound
    anything else: no answer (refused, cut, timed out),
      5xx, 401, 403, a 404 from somewhere else          OrchestratorUnavailable: not now, and it may have happened

Whether a task is gone is Conductor's to say.  While it restarts, the proxy before it answers 404, a login page 302, a
gateway 403; who took that for an answer about the task would throw away finished work.  Conductor's own answer
(server 3.32.3) is `{"status": 404, "message": …, "instance": …, "retryable": …}`; it uses that form for a path that it
does not serve too, with Spring's text, and that means a wrong CONDUCTOR_SERVER_URL.

Conductor says 500 to a body it cannot parse too, so an OrchestratorUnavailable may stay one however often it is tried.
Texts name the step and what the server said, or its address where it said nothing.  They never hold a header: that is
where the token travels.
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

_NO_USE = frozenset({400, 413})
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
    """Raise one of our errors, led by `step`, for one of the client's; `address` is where the server should be."""
    try:
        yield
    except sdk.ERRORS as error:
        raise our_error(step, error, address) from error


def our_error(step: str, error: Exception, address: str = "") -> OrchestratorError:
    """What the client's error means to us."""
    status = _status(error)
    if not status and address:
        said = f"Conductor at {address} gives no answer: {_said(error, status)}"
        return OrchestratorUnavailable(f"cannot {step}: {said}{_NO_ANSWER}")
    text = f"cannot {step}: {_said(error, status)}"
    if status in _NO_USE:
        return OrchestratorRefused(text)
    if status == 404 and _is_conductors(error):
        return OrchestratorNotFound(text)
    return OrchestratorUnavailable(f"{text}{_HINTS.get(status, '')}")


def _is_conductors(error: Exception) -> bool:
    """Whether a 404 is Conductor's own, about what was asked for."""
    body = _json(error)
    if body is None or not body.keys() >= _OWN_FIELDS or body["status"] != 404:
        return False
    return not str(body["message"]).startswith(_NO_SUCH_PATH)


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
    body = _json(error) or {}
    try:
        found = [str(item["message"]) for item in body.get("validationErrors") or [body]]
    except (KeyError, TypeError):
        found = [str(reason)]
    return f"{status} {' '.join('; '.join(found).split())}"


def _json(error: Exception) -> dict[str, Any] | None:
    """The answer's body where it is a JSON object."""
    try:
        found = json.loads(getattr(error, "body", None) or "")
    except (ValueError, TypeError):
        return None
    return found if isinstance(found, dict) else None
