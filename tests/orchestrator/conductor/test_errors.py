"""Every error the Conductor client can raise becomes one of ours."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import closing

import conductor.client.exceptions
import conductor.client.http
import pytest
from conductor.client.exceptions.api_error import APIErrorCode
from conductor.client.http.rest import RESTResponse

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.orchestrator.conductor.errors import our_error, translated
from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator
from perago.orchestrator.conductor.sdk import ERRORS, ApiException, AuthorizationException

OWN_404 = '{"status":404,"message":"Task not found for taskId: task-1","instance":"vm","retryable":false}'
TABLE: list[tuple[int, type[OrchestratorError]]] = [
    (0, OrchestratorUnavailable),
    (302, OrchestratorUnavailable),
    (400, OrchestratorRefused),
    (401, OrchestratorUnavailable),
    (403, OrchestratorUnavailable),
    (404, OrchestratorUnavailable),
    (405, OrchestratorUnavailable),
    (408, OrchestratorUnavailable),
    (409, OrchestratorUnavailable),
    (413, OrchestratorRefused),
    (422, OrchestratorUnavailable),
    (425, OrchestratorUnavailable),
    (429, OrchestratorUnavailable),
    (500, OrchestratorUnavailable),
    (502, OrchestratorUnavailable),
    (503, OrchestratorUnavailable),
    (504, OrchestratorUnavailable),
]


class Response:
    """The response that the HTTP library hands the client."""

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
    # Perago has a copy of the client, with classes of the same names.
    mapped = {(one.__module__, one.__qualname__) for one in ERRORS}
    found = {
        error: {(base.__module__, base.__qualname__) for base in error.mro()} for error in sdk_error_classes()
    }

    unmapped = [error for error, bases in found.items() if not bases & mapped]

    assert {"ApiException", "AuthorizationException"} <= {error.__name__ for error in found}
    assert not unmapped


@pytest.mark.parametrize(("status", "expected"), TABLE)
def test_an_answer_becomes_the_error_of_its_row(status: int, expected: type[OrchestratorError]) -> None:
    error = ApiException(status=status, reason="because")

    ours = our_error("do it", error)

    assert type(ours) is expected
    assert str(ours).startswith("cannot do it: ")


def test_only_conductors_own_answer_means_not_found() -> None:
    ours = our_error("read task task-1", ApiException(http_resp=RESTResponse(Response(404, OWN_404))))

    assert type(ours) is OrchestratorNotFound
    assert str(ours) == "cannot read task task-1: 404 Task not found for taskId: task-1"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="nothing"),
        pytest.param("<html><center><h1>404 Not Found</h1></center><hr>nginx</html>", id="nginx"),
        pytest.param("404 page not found\n", id="traefik"),
        pytest.param("default backend - 404", id="an ingress"),
        pytest.param('{"message":"no Route matched with those values"}', id="kong"),
        pytest.param(
            '{"timestamp":"2026-11-16T10:00:00Z","status":404,"error":"Not Found","path":"/api/tasks/task-1"}',
            id="Spring's page",
        ),
        pytest.param(
            '{"status":404,"message":"No static resource api/api/tasks/task-1.","instance":"vm","retryable":false}',
            id="a wrong path on Conductor itself",
        ),
        pytest.param("[404]", id="other JSON"),
        pytest.param('{"status":200,"message":"x","instance":"vm","retryable":false}', id="another status"),
    ],
)
def test_a_404_from_somewhere_else_means_not_now_and_points_at_the_url(body: str) -> None:
    ours = our_error("read task task-1", ApiException(http_resp=RESTResponse(Response(404, body))))

    assert type(ours) is OrchestratorUnavailable
    assert "CONDUCTOR_SERVER_URL" in str(ours)


def test_the_clients_other_error_is_read_by_its_code() -> None:
    APIError = ERRORS[-1]
    assert isinstance(our_error("look", APIError(APIErrorCode.NOT_FOUND, "gone")), OrchestratorUnavailable)
    assert isinstance(our_error("look", APIError(APIErrorCode.CONFLICT, "twice")), OrchestratorUnavailable)
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


def test_a_failed_connection_names_the_address_without_its_login_and_says_what_to_check() -> None:
    with (
        closing(ConductorOrchestrator("http://me:pass@127.0.0.1:1/api", sleep=lambda _seconds: None)) as away,
        pytest.raises(OrchestratorUnavailable) as raised,
    ):
        away.taskdef("clean")

    said = str(raised.value)
    assert said.startswith(
        "cannot read the TaskDef 'clean': Conductor at http://127.0.0.1:1/api gives no answer: "
    )
    assert said.endswith("Connection refused; check CONDUCTOR_SERVER_URL, and that Conductor is up")
