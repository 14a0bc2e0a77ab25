"""Every status, and every error of urllib3 and of obstore, has a place in Perago's tree."""

from __future__ import annotations

import inspect
import json
from http import HTTPStatus

import obstore.exceptions as obs
import pytest
import urllib3
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
)
from perago.lake.lakefs import api
from perago.lake.lakefs.client import LakeFSClient, Options, Repeat
from perago.lake.lakefs.errors import (
    FENCE_MARK,
    StatusError,
    is_busy,
    status_class,
    translate,
    was_not_sent,
)


def classes(module: object) -> list[type[Exception]]:
    found = [one for _, one in inspect.getmembers(module, inspect.isclass) if issubclass(one, Exception)]
    return [one for one in found if not issubclass(one, Warning)]


def bare(kind: type[Exception]) -> Exception:
    """Create an error without its constructor, with a text: only the class counts."""
    plain = type(kind.__name__, (kind,), {"__str__": lambda _: "text", "__repr__": lambda _: "text"})
    return plain.__new__(plain)


def answer(status: int, message: str = "branch not found") -> Exception:
    return StatusError(status, "reason", json.dumps({"message": message}))


STATUSES = {
    300: LakeUnavailable,
    302: LakeUnavailable,
    400: LakeRefused,
    401: LakeUnauthenticated,
    403: LakeForbidden,
    404: LakeNotFound,
    405: LakeRefused,
    408: LakeUnavailable,
    409: LakeConflict,
    410: LakeNotFound,
    412: LakeRefused,
    413: LakeRefused,
    423: LakeRefused,
    429: LakeRefused,
    499: LakeUnavailable,
    500: LakeUnavailable,
    501: LakeUnavailable,
    502: LakeUnavailable,
    503: LakeUnavailable,
    504: LakeUnavailable,
    0: LakeUnavailable,
}


@pytest.mark.parametrize(("status", "becomes"), STATUSES.items())
def test_every_status_means_one_thing(status: int, becomes: type[LakeError]) -> None:
    problem = translate(answer(status), "doing something")
    assert type(problem) is becomes is status_class(status)
    keys = "; check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
    remedy = keys if status == 401 else ""
    assert str(problem) == f"doing something: lakeFS answered {status}: branch not found{remedy}"


@pytest.mark.parametrize(
    ("status", "text", "becomes"),
    [
        (400, "main: uncommitted changes (dirty branch)", BranchDirty),
        (400, "commit: no changes", NothingToCommit),
        (412, f"hook failed: {FENCE_MARK} expected head a but the branch is at b", HeadMoved),
        (412, "hook failed: somebody else's rule", LakeRefused),
        (401, "insufficient permissions: missing fs:CreateBranch", LakeForbidden),
        (401, "error authenticating request", LakeUnauthenticated),
    ],
)
def test_some_refusals_are_told_apart_by_their_text(status: int, text: str, becomes: type[LakeError]) -> None:
    assert type(translate(answer(status, text), "x")) is becomes


@pytest.mark.parametrize("status", [one.value for one in HTTPStatus if one.value // 100 != 2])
def test_every_status_there_is_belongs_to_one_family(status: int) -> None:
    family = STATUSES.get(status) or (LakeRefused if status // 100 == 4 else LakeUnavailable)

    assert type(translate(answer(status), "x")) is family


def test_an_answer_without_a_body_is_told_by_its_status_line() -> None:
    assert "answered 502: Bad Gateway;" in str(translate(StatusError(502, "Bad Gateway"), "x"))
    assert "answered 502: no reason given;" in str(translate(StatusError(502), "x"))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 412, 500, 503])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "<html><head><title>404 Not Found</title></head></html>",
        '"not found"',
        '{"error": "branch not found"}',
        '{"message": "branch not found", "path": "/api/v1"}',
        '{"message": null}',
    ],
)
def test_an_answer_that_is_not_lakefs_own_says_nothing(status: int, body: str) -> None:
    assert type(translate(StatusError(status, "Not Found", body), "x")) is LakeUnavailable


def test_a_conflict_is_answered_with_an_empty_reference() -> None:
    assert type(translate(StatusError(409, "Conflict", '{"reference":""}'), "x")) is LakeConflict


@pytest.mark.parametrize(
    "message", ["Not Found", "invalid API endpoint", "no Route matched with those values"]
)
def test_a_404_that_does_not_say_what_was_not_found_says_nothing(message: str) -> None:
    assert type(translate(answer(404, message), "x")) is LakeUnavailable


@pytest.mark.parametrize("kind", [one for one in classes(http) if issubclass(one, http.HTTPError)])
def test_every_error_of_the_connection_is_unavailable(kind: type[Exception]) -> None:
    assert type(translate(bare(kind), "x")) is LakeUnavailable


MAPPED = {
    "PermissionDeniedError": LakeForbidden,
    "UnauthenticatedError": LakeUnauthenticated,
    "AlreadyExistsError": LakeConflict,
    "NotFoundError": LakeNotFound,
    "PreconditionError": LakeRefused,
    "NotModifiedError": LakeRefused,
    "InvalidPathError": LakeRefused,
    "NotSupportedError": LakeRefused,
    "UnknownConfigurationKeyError": LakeError,
    "GenericError": LakeUnavailable,
    "JoinError": LakeUnavailable,
    "BaseError": LakeUnavailable,
}


@pytest.mark.parametrize("kind", classes(obs), ids=lambda kind: kind.__name__)
def test_every_error_of_the_object_store_is_mapped(kind: type[Exception]) -> None:
    assert type(translate(kind("text"), "x")) is MAPPED[kind.__name__]


def test_an_object_that_is_not_there_is_not_found() -> None:
    assert type(translate(FileNotFoundError("no such object"), "x")) is LakeNotFound


def test_an_answer_that_is_no_json_is_unavailable() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("<html>")
    assert type(translate(caught.value, "x")) is LakeUnavailable


def test_an_error_of_ours_stays_as_it_is() -> None:
    ours = LakeConflict("taken")
    assert translate(ours, "x") is ours


def test_texts_hold_no_header_and_no_dump() -> None:
    error = answer(403, "no")
    error.headers = {"Authorization": "Basic c2VjcmV0"}
    dumped = obs.GenericError("it failed\n\nDebug source:\nsecret structure")
    for problem in (translate(error, "x"), translate(dumped, "x")):
        assert "secret" not in str(problem)
        assert "c2VjcmV0" not in str(problem)


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (answer(423), True),
        (answer(429), True),
        (answer(500, "branch is currently locked, try again later"), True),
        (answer(500, "something else"), False),
        (answer(503), False),
        (bare(http.ProtocolError), False),
    ],
)
def test_only_an_answer_that_puts_the_call_off_is_busy(error: Exception, busy: bool) -> None:
    assert is_busy(error) is busy


def test_only_a_connection_that_never_came_about_sent_nothing() -> None:
    pool = urllib3.HTTPConnectionPool("127.0.0.1")
    assert was_not_sent(http.ConnectTimeoutError())
    assert was_not_sent(bare(http.NewConnectionError))
    assert was_not_sent(bare(http.NameResolutionError))
    assert not was_not_sent(http.ReadTimeoutError(pool, "/", "late"))
    assert not was_not_sent(http.ProtocolError("Connection aborted."))


@pytest.mark.parametrize("endpoint", ["http://me:pass@127.0.0.1:1", "http://nowhere.invalid:1/x/"])
def test_a_failed_connection_names_the_address_without_its_login_and_says_what_to_check(
    endpoint: str,
) -> None:
    client = LakeFSClient(endpoint, ("key", "secret"), Options(tries=1))

    with pytest.raises(LakeUnavailable) as raised:
        client.call(
            "read it",
            api.get_config(),
            repeat=Repeat.UNSENT,
        )

    said = str(raised.value)
    where = endpoint.replace("me:pass@", "").rstrip("/")
    assert said.startswith(f"read it: lakeFS at {where} gives no answer: ")
    assert said.endswith("; check LAKECTL_SERVER_ENDPOINT_URL, and that lakeFS is up")
    assert "host=" not in said
