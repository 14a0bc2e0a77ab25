"""Every error the Conductor client can raise becomes one of ours."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import conductor.client.exceptions
import conductor.client.http
import pytest
from conductor.client.exceptions.api_error import APIError, APIErrorCode
from conductor.client.http.rest import ApiException, AuthorizationException, RESTResponse

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.orchestrator.conductor_errors import SDK_ERRORS, our_error, translated

TABLE: list[tuple[int, type[OrchestratorError]]] = [
    (0, OrchestratorUnavailable),
    (302, OrchestratorRefused),
    (400, OrchestratorRefused),
    (401, OrchestratorRefused),
    (403, OrchestratorRefused),
    (404, OrchestratorNotFound),
    (405, OrchestratorRefused),
    (408, OrchestratorUnavailable),
    (409, OrchestratorRefused),
    (413, OrchestratorRefused),
    (422, OrchestratorRefused),
    (425, OrchestratorUnavailable),
    (429, OrchestratorUnavailable),
    (500, OrchestratorUnavailable),
    (502, OrchestratorUnavailable),
    (503, OrchestratorUnavailable),
    (504, OrchestratorUnavailable),
]


class Response:
    """What the HTTP library hands the client."""

    reason_phrase = "Said No"

    def __init__(self, status: int, text: str) -> None:
        self.status_code = status
        self.text = text
        self.headers = {"X-Authorization": "token-in-a-header"}
        self.stream = None


def sdk_error_classes() -> Iterator[type[Exception]]:
    """Every exception class defined in the client's packages that make calls."""
    for package in (conductor.client.http, conductor.client.exceptions):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for _, found in inspect.getmembers(module, inspect.isclass):
                if issubclass(found, Exception) and found.__module__ == info.name:
                    yield found


def test_every_error_class_of_the_client_is_in_the_table() -> None:
    found = set(sdk_error_classes())

    unmapped = [error for error in found if not issubclass(error, SDK_ERRORS)]

    assert ApiException in found
    assert AuthorizationException in found
    assert not unmapped


@pytest.mark.parametrize(("status", "expected"), TABLE)
def test_an_answer_becomes_the_error_of_its_row(status: int, expected: type[OrchestratorError]) -> None:
    error = ApiException(status=status, reason="because")

    ours = our_error("do it", error)

    assert type(ours) is expected
    assert str(ours).startswith("cannot do it: ")


def test_the_clients_other_error_is_read_by_its_code() -> None:
    assert isinstance(our_error("look", APIError(APIErrorCode.NOT_FOUND, "gone")), OrchestratorNotFound)
    assert isinstance(our_error("look", APIError(APIErrorCode.CONFLICT, "twice")), OrchestratorRefused)
    assert isinstance(our_error("look", APIError(APIErrorCode.UNKNOWN, "?")), OrchestratorUnavailable)


def test_the_servers_own_words_are_shown_on_one_line() -> None:
    body = '{"status": 400, "message": "see below", "validationErrors": [{"message": "no\\nname"}, {"message": "no task"}]}'
    answer = RESTResponse(Response(400, body))

    with (
        pytest.raises(OrchestratorRefused, match=r"^cannot register it: 400 no name; no task$"),
        translated("register it"),
    ):
        raise ApiException(http_resp=answer)


def test_a_refused_login_names_the_settings_and_no_header() -> None:
    answer = RESTResponse(Response(401, '{"error": "EXPIRED_TOKEN", "message": "token expired"}'))

    text = str(our_error("poll", AuthorizationException(http_resp=answer)))

    assert "401 token expired" in text
    assert "CONDUCTOR_AUTH_KEY" in text
    assert "token-in-a-header" not in text
