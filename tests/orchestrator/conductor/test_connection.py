"""Connections to Conductor: what is sent again, the errors of a broken connection, and the use of a proxy."""

from __future__ import annotations

import base64
import gzip
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from urllib3.exceptions import (
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from perago.errors import OrchestratorUnavailable
from perago.orchestrator.conductor.errors import StatusError, our_error
from perago.orchestrator.conductor.http import Connection, proxy_of
from tests.support.servers.scripted_server import Request, scripted
from tests.support.servers.tls import answering_with_tls, self_signed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proxies nor certificates of the machine."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def connection(url: str) -> Connection:
    return Connection(url, connect_timeout=5, read_timeout=5)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server with one answer for each connection, which it then closes; an empty answer closes it at once."""
    requests: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            for answer in answers:
                try:
                    taken, _ = server.accept()
                except OSError:  # the test is over, and this answer was not asked for
                    return
                with taken:
                    requests.append(taken.recv(65536))
                    taken.sendall(answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", requests
        finally:
            server.shutdown(socket.SHUT_RDWR)  # which ends a waiting `accept`; closing alone does not
            serving.join()


def test_a_get_whose_connection_broke_is_sent_once_more() -> None:
    with answering(b"", OK) as (url, requests), closing(connection(url)) as sending:
        answer = sending.send("GET", "/tasks/1?a=%C3%A4+b")

    assert answer == "{}"
    assert [request.split(b"\r\n")[0] for request in requests] == [b"GET /tasks/1?a=%C3%A4+b HTTP/1.1"] * 2


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("POST", 1), ("PUT", 1), ("DELETE", 1)])
def test_a_call_that_fails_again_or_might_happen_twice_is_an_error(method: str, sent: int) -> None:
    with answering(b"", b"") as (url, requests), closing(connection(url)) as sending:
        with pytest.raises(ProtocolError):
            sending.send(method, "/tasks", b"{}")
        assert len(requests) == sent


def test_a_server_that_is_not_there_and_one_that_is_silent_are_told_apart() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with closing(connection(url)) as sending, pytest.raises(ReadTimeoutError):
            sending.send("GET", "/", read_timeout=0.05)
    with closing(connection(url)) as sending, pytest.raises(NewConnectionError):
        sending.send("GET", "/")


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"
    with answering(moved) as (url, requests), closing(connection(url)) as sending:
        with pytest.raises(StatusError) as raised:
            sending.send("GET", "/tasks/1")
        assert (raised.value.status, len(requests)) == (302, 1)


def test_text_is_sent_as_utf_8_and_read_as_far_as_it_is() -> None:
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, object]:
        seen.append(request)
        return 200, "gr\u00fcn"

    with scripted(answer) as server, closing(connection(server.url)) as sending:
        got = sending.send("POST", "/tasks", '{"a": "ö"}'.encode(), headers={"X-Authorization": "b"})

    assert (seen[0].body, seen[0].token, got) == ('{"a": "ö"}', "b", "gr\u00fcn")


def test_a_compressed_answer_is_read() -> None:
    packed = gzip.compress(b'{"a": 1}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with answering(head + packed) as (url, requests), closing(connection(url)) as sending:
        assert sending.send("GET", "/tasks/1") == '{"a": 1}'
    assert b"accept-encoding: gzip" in requests[0].lower()


def test_a_login_in_the_url_is_a_header_and_not_in_the_address() -> None:
    with answering(OK) as (url, requests), closing(connection(url.replace("//", "//me:pass@"))) as sending:
        sending.send("GET", "/tasks/1")

    assert b"authorization: Basic " + base64.b64encode(b"me:pass") in requests[0]
    assert b"me:pass" not in requests[0]


def test_a_slash_and_a_query_at_the_end_of_the_url_are_left_out() -> None:
    with answering(OK) as (url, requests), closing(connection(f"{url}/api/?key=hush#x")) as sending:
        sending.send("GET", "/tasks/1")

    assert requests[0].startswith(b"GET /api/tasks/1 HTTP/1.1\r\n")


HOST = "http://conductor.example/api"
PROXY = "http://127.0.0.1:9"
PROXIES: list[tuple[dict[str, str], str | None]] = [
    ({"HTTP_PROXY": PROXY}, PROXY),
    ({"ALL_PROXY": PROXY}, PROXY),
    ({"HTTP_PROXY": "127.0.0.1:9"}, PROXY),
    ({"HTTPS_PROXY": PROXY}, None),
    ({"HTTP_PROXY": PROXY, "NO_PROXY": "conductor.example"}, None),
    ({"HTTP_PROXY": PROXY, "NO_PROXY": ".example"}, None),
    ({"ALL_PROXY": PROXY, "NO_PROXY": "*"}, None),
    ({"HTTP_PROXY": PROXY, "NO_PROXY": "other.example"}, PROXY),
    ({}, None),
]


@pytest.mark.parametrize(("environ", "proxy"), PROXIES)
def test_the_environment_says_which_proxy_a_server_is_reached_through(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], proxy: str | None
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    assert proxy_of(HOST) == proxy


def test_a_call_through_a_proxy_names_the_server_and_carries_the_proxys_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering(OK) as (url, requests):
        monkeypatch.setenv("HTTP_PROXY", url.replace("//", "//me:p%40ss@"))
        with closing(connection(HOST)) as sending:
            assert sending.send("POST", "/tasks", b"{}") == "{}"

    head = requests[0].split(b"\r\n")
    assert head[0] == b"POST http://conductor.example/api/tasks HTTP/1.1"
    assert b"proxy-authorization: Basic " + base64.b64encode(b"me:p@ss") in head
    assert b"Host: conductor.example" in head


def test_a_secure_server_is_reached_by_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    with answering(refused) as (url, requests):
        monkeypatch.setenv("HTTPS_PROXY", url)
        with (
            closing(connection("https://conductor.example/api")) as sending,
            pytest.raises(ProxyError) as raised,
        ):
            sending.send("GET", "/tasks/1")

    assert requests[0].startswith(b"CONNECT conductor.example:443 HTTP/1.")
    assert "403" in str(our_error("read it", raised.value))


def test_a_proxy_that_is_not_there_is_a_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with closing(connection(HOST)) as sending, pytest.raises(ProxyError) as raised:
        sending.send("GET", "/tasks/1")

    assert "Connection error: " in str(our_error("read it", raised.value))


@pytest.mark.skipif(find_spec("socks") is not None, reason="PySocks is installed")
def test_a_socks_proxy_says_what_it_needs_and_not_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:hush@127.0.0.1:9")

    with pytest.raises(OrchestratorUnavailable, match=r"urllib3\[socks\]") as raised:
        connection(HOST)

    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("trusted", [None, "SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_certificate_is_trusted_if_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trusted: str | None
) -> None:
    certificate = self_signed(tmp_path)
    if trusted == "SSL_CERT_FILE":
        monkeypatch.setenv(trusted, str(certificate))
    elif trusted:
        # OpenSSL looks a certificate up by the hash of its name.
        hashed = ["openssl", "x509", "-hash", "-noout", "-in", str(certificate)]
        name = subprocess.run(hashed, check=True, capture_output=True, text=True).stdout.strip()
        (tmp_path / f"{name}.0").write_bytes((tmp_path / "certificate").read_bytes())
        monkeypatch.setenv(trusted, str(tmp_path))
    with answering_with_tls(certificate, until=b"{}") as url, closing(connection(url)) as sending:
        if trusted:
            assert sending.send("POST", "/tasks", b"{}") == "{}"
            return
        with pytest.raises(SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            sending.send("POST", "/tasks", b"{}")
