"""Every status, and every error of a connection, becomes one of ours."""

from __future__ import annotations

import inspect
from contextlib import closing
from http import HTTPStatus

import pytest
import urllib3.exceptions as http

from perago.errors import (
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
)
from perago.orchestrator.conductor.errors import StatusError, our_error, translated, was_broken
from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator

OWN_404 = '{"status":404,"message":"Task not found for taskId: task-1","instance":"vm","retryable":false}'
TABLE: list[tuple[int, type[OrchestratorError]]] = [
    (301, OrchestratorUnavailable),
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


def connection_errors() -> list[type[http.HTTPError]]:
    found = [one for _, one in inspect.getmembers(http, inspect.isclass) if issubclass(one, http.HTTPError)]
    return [one for one in found if not issubclass(one, Warning)]


def bare(kind: type[http.HTTPError]) -> http.HTTPError:
    """One of these without its constructor, and with a text: only the class counts."""
    plain = type(kind.__name__, (kind,), {"__str__": lambda _: "two\nlines"})
    return plain.__new__(plain)


@pytest.mark.parametrize("kind", connection_errors(), ids=lambda kind: kind.__name__)
def test_every_error_of_a_connection_is_unavailable_and_names_the_server(kind: type[http.HTTPError]) -> None:
    with pytest.raises(OrchestratorUnavailable) as raised, translated("poll", "http://conductor/api"):
        raise bare(kind)

    said = str(raised.value)
    assert said.startswith("cannot poll: Conductor at http://conductor/api gives no answer: ")
    assert said.endswith(": two lines; check CONDUCTOR_SERVER_URL, and that Conductor is up")


def test_only_a_connection_that_was_made_and_did_not_stay_silent_broke() -> None:
    assert [one.__name__ for one in connection_errors() if not was_broken(bare(one))] == [
        "ConnectTimeoutError",
        "NameResolutionError",
        "NewConnectionError",
        "ProxyError",
        "ReadTimeoutError",
    ]


@pytest.mark.parametrize("status", [one.value for one in HTTPStatus if one.value // 100 != 2])
def test_every_status_there_is_has_its_error(status: int) -> None:
    expected = OrchestratorRefused if status in (400, 413) else OrchestratorUnavailable

    assert type(our_error("do it", StatusError(status))) is expected


@pytest.mark.parametrize(("status", "expected"), TABLE)
def test_an_answer_becomes_the_error_of_its_row(status: int, expected: type[OrchestratorError]) -> None:
    ours = our_error("do it", StatusError(status, "because"))

    assert type(ours) is expected
    assert str(ours).startswith(f"cannot do it: {status} because")


def test_only_conductors_own_answer_says_that_something_is_not_there() -> None:
    ours = our_error("read task task-1", StatusError(404, "CommandResult No", OWN_404))

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
    ours = our_error("read task task-1", StatusError(404, "Said No", body))

    assert type(ours) is OrchestratorUnavailable
    assert "CONDUCTOR_SERVER_URL" in str(ours)


def test_the_servers_own_words_are_shown_on_one_line() -> None:
    body = '{"status": 400, "message": "see below", "validationErrors": [{"message": "no\\nname"}, {"message": "no task"}]}'

    with (
        pytest.raises(OrchestratorRefused, match=r"^cannot register it: 400 no name; no task$"),
        translated("register it"),
    ):
        raise StatusError(400, "Said No", body)


def test_a_refused_login_names_the_settings_and_no_header() -> None:
    body = '{"error": "EXPIRED_TOKEN", "message": "token expired"}'

    text = str(our_error("poll", StatusError(401, "Said No", body)))

    assert text == ("cannot poll: 401 token expired; check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET")


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
