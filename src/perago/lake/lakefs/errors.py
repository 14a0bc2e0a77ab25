"""Translates errors from the lakeFS API, urllib3 and obstore into Perago's error classes.

There is one table per source, read from top to bottom.  `tests/lake/lakefs/test_errors.py` checks that no status and no
class is missing.

    answer                                   becomes
    400 dirty branch                         BranchDirty
    400 no changes                           NothingToCommit
    412 with the fence's text                HeadMoved
    412 with the marker's text               UnpublishedRun
    412 path already exists                  LakeConflict
    400, 412, 423, 429 and other 4xx         LakeRefused         the server decided, nothing changed
    401 insufficient permissions             LakeForbidden       the keys are known, a policy forbids the call
    401                                      LakeUnauthenticated
    403                                      LakeForbidden
    404, 410                                 LakeNotFound
    409                                      LakeConflict
    408, 499, 5xx, 3xx, no answer            LakeUnavailable     the call may have happened
    any status without lakeFS's JSON         LakeUnavailable     a proxy's answer says nothing about lakeFS

Error messages contain the server's message and what was being done, but never a header or a key.  If the server did not
respond, they name its address, without credentials.  If no connection could be made, they also suggest a remedy.
"""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import obstore.exceptions as obs
import urllib3.exceptions as http

from perago.errors import (
    BranchDirty,
    HeadMoved,
    LakeConflict,
    LakeError,
    LakeForbidden,
    LakeNotFound,
    LakeRefused,
    LakeUnauthenticated,
    LakeUnavailable,
    NothingToCommit,
    UnpublishedRun,
)
from perago.protocol.run_steps import REFUSAL, UNPUBLISHED

FENCE_MARK = "perago fence:"
_STATUSES: dict[int, type[LakeError]] = {
    401: LakeUnauthenticated,
    403: LakeForbidden,
    404: LakeNotFound,
    408: LakeUnavailable,
    409: LakeConflict,
    410: LakeNotFound,
    499: LakeUnavailable,
}
_TEXTS: tuple[tuple[int, str, type[LakeError]], ...] = (
    (400, "dirty branch", BranchDirty),
    (400, "no changes", NothingToCommit),
    (412, FENCE_MARK, HeadMoved),
    (412, UNPUBLISHED, UnpublishedRun),
    (412, "path already exists", LakeConflict),
    (401, "insufficient permissions", LakeForbidden),
)
# Subclasses come before their bases.
_CLASSES: tuple[tuple[type[BaseException], type[LakeError]], ...] = (
    (FileNotFoundError, LakeNotFound),
    (obs.NotFoundError, LakeNotFound),
    (obs.PermissionDeniedError, LakeForbidden),
    (obs.UnauthenticatedError, LakeUnauthenticated),
    (obs.AlreadyExistsError, LakeConflict),
    (obs.PreconditionError, LakeRefused),
    (obs.NotModifiedError, LakeRefused),
    (obs.InvalidPathError, LakeRefused),
    (obs.NotSupportedError, LakeRefused),
    (obs.UnknownConfigurationKeyError, LakeError),
    (obs.BaseError, LakeUnavailable),
    (http.HTTPError, LakeUnavailable),
    (TimeoutError, LakeUnavailable),
    (ConnectionError, LakeUnavailable),
    (json.JSONDecodeError, LakeUnavailable),
    (ValueError, LakeRefused),
)
_NOT_SENT = (http.NewConnectionError, http.ConnectTimeoutError, http.ProxyError)
_NO_ANSWER = (http.HTTPError, TimeoutError, ConnectionError)
# urllib3's messages start with the repr of its own object: "<_Bounded(host='lake', port=80) at 0x7f>: Failed to …".
_OWN_OBJECT = re.compile(r"<?\w+\(host=[^)]*\)(?: at 0x[0-9a-f]+>)?: ")
_REMEDY = "; check LAKECTL_SERVER_ENDPOINT_URL, and that lakeFS is up"
_KEYS = "; check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
_ELSEWHERE = "; check LAKECTL_SERVER_ENDPOINT_URL, and what is in between"
_BUSY_STATUSES = (423, 429)
_LOCKED = "branch is currently locked"
_LONGEST_TEXT = 600


class StatusError(Exception):
    """An HTTP response with an unsuccessful status.  `body` is its text, and `reason` is its reason phrase."""

    def __init__(self, status: int, reason: str = "", body: str = "") -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason
        self.body = body


def translate(error: BaseException, doing: str, address: str = "") -> LakeError:
    """Return the error to raise for `error`.  `doing` describes the operation, and `address` names the server."""
    if isinstance(error, LakeError):
        return error
    if isinstance(error, StatusError):
        status, text = error.status, message_of(error)
        if not is_own_answer(error):
            return LakeUnavailable(
                f"{doing}: something before lakeFS answered {status}: {' '.join(text.split())}{_ELSEWHERE}"
            )
        becomes = status_class(status, text)
        if becomes is UnpublishedRun:
            # The server wraps the marker's text in a stack of its script.
            text = REFUSAL
        return becomes(
            f"{doing}: lakeFS answered {status}: {text}{_KEYS if becomes is LakeUnauthenticated else ''}"
        )
    if address and isinstance(error, _NO_ANSWER):
        remedy = _REMEDY if was_not_sent(error) else ""
        return LakeUnavailable(f"{doing}: lakeFS at {address} gives no answer: {_short(error)}{remedy}")
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return not_lakefs(doing, address)
    for raised, becomes in _CLASSES:
        if isinstance(error, raised):
            return becomes(f"{doing}: {_short(error)}")
    return LakeError(f"{doing}: {_short(error)}")


def not_lakefs(doing: str, address: str) -> LakeUnavailable:
    """Return the error for a response that cannot have come from lakeFS."""
    named = f" of {address}" if address else ""
    return LakeUnavailable(f"{doing}: the answer{named} is not lakeFS's{_ELSEWHERE}")


def address_of(endpoint: str) -> str:
    """Return an endpoint for use in messages, without credentials, query or fragment."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def status_class(status: int, text: str = "") -> type[LakeError]:
    """Return the error class for a response with this status and text."""
    for when, part, becomes in _TEXTS:
        if status == when and part in text:
            return becomes
    default = LakeRefused if 400 <= status < 500 else LakeUnavailable
    return _STATUSES.get(status, default)


def message_of(error: StatusError) -> str:
    """Return the error message in a server response."""
    try:
        text = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        text = error.body or error.reason or "no reason given"
    return text.strip()[:_LONGEST_TEXT]


def is_own_answer(error: BaseException) -> bool:
    """Return whether the response came from lakeFS itself, whose errors are JSON objects with only a message.

    A 404 from lakeFS says what was "not found", in lower case.  Gateways say "Not Found", or that there is no such
    route.  The response to a conflicting merge looks like that to a successful one, but with an empty reference.
    """
    if not isinstance(error, StatusError):
        return False
    try:
        said = json.loads(error.body)
    except ValueError:
        return False
    if not isinstance(said, dict):
        return False
    if error.status == 409 and said.get("reference") == "":
        return True
    own = said.keys() == {"message"} and isinstance(said["message"], str)
    return own and (error.status != 404 or "not found" in said["message"])


def is_busy(error: BaseException) -> bool:
    """Return whether the server was busy.  If so, nothing changed, and the same call may succeed later."""
    if not isinstance(error, StatusError):
        return False
    return error.status in _BUSY_STATUSES or (error.status == 500 and _LOCKED in message_of(error))


def gave_no_answer(error: BaseException) -> bool:
    """Return whether the connection failed, before or after the call was sent."""
    return isinstance(error, _NO_ANSWER)


def was_not_sent(error: BaseException) -> bool:
    """Return whether the connection could not be made, so that the server never saw the call."""
    return isinstance(error, _NOT_SENT)


def _short(error: BaseException) -> str:
    # obstore appends a dump of its own structures after the first paragraph.
    text = _OWN_OBJECT.sub("", " ".join(str(error).split("\n\nDebug source", 1)[0].split()))
    return f"{type(error).__name__}: {text[:_LONGEST_TEXT]}"
