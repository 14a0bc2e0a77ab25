"""`/healthz` and `/metrics` over real HTTP."""

from __future__ import annotations

import http.client
import json

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.observe.health import Health
from perago.runtime.observe.status_server import StatusServer, parse_address

WELL = Health((), {"clean": 0.25}, 0.5, 2)
ILL = Health(("no poll for clean was answered for 61 s",), {"clean": 61.0}, 0.5, 0)


def get(server: StatusServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def status_server(health: Health = WELL) -> StatusServer:
    return StatusServer(("127.0.0.1", 0), health=lambda: health, metrics=lambda: b"perago_in_flight 2.0\n")


def test_a_healthy_worker_answers_200_with_what_it_knows() -> None:
    with status_server() as server:
        status, content_type, body = get(server, "/healthz")

    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {
        "healthy": True,
        "reasons": [],
        "poll_age_seconds": {"clean": 0.25},
        "supervisor_age_seconds": 0.5,
        "in_flight": 2,
    }


def test_an_unhealthy_worker_answers_503_with_the_reasons() -> None:
    with status_server(ILL) as server:
        status, _, body = get(server, "/healthz?probe=1")

    assert status == 503
    assert json.loads(body)["reasons"] == list(ILL.reasons)


def test_metrics_are_served_as_prometheus_text() -> None:
    with status_server() as server:
        status, content_type, body = get(server, "/metrics")

    assert (status, body) == (200, b"perago_in_flight 2.0\n")
    assert content_type.startswith("text/plain; version=0.0.4")


def test_a_head_request_has_no_body_and_another_path_is_not_found() -> None:
    with status_server() as server:
        assert get(server, "/healthz", "HEAD")[::2] == (200, b"")
        assert get(server, "/")[0] == 404


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    with status_server() as server, pytest.raises(RuntimeConfigError, match=r"choose another --http"):
        StatusServer(server.address, health=lambda: WELL, metrics=lambda: b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:9", ("0.0.0.0", 9)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_a_port_with_or_without_a_host(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "port", "host:", "99999", "-1"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RuntimeConfigError, match=r"such as 8080"):
        parse_address(text)
