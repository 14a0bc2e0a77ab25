"""Connections to Conductor: what is sent again, the errors the client sees, and the use of a proxy."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from perago.orchestrator.conductor.http import Connection, open_connection
from perago.orchestrator.conductor.sdk import httpx
from tests.support.servers.scripted_server import Request, scripted

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def connection(url: str) -> Connection:
    made = open_connection(url, connect_timeout=5, read_timeout=5)
    assert isinstance(made, Connection)
    return made


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
        answer = sending.request("GET", f"{url}/tasks/1", params=[("a", "ä b")])

    assert (answer.status_code, answer.text, answer.is_success) == (200, "{}", True)
    assert [request.split(b"\r\n")[0] for request in requests] == [b"GET /tasks/1?a=%C3%A4+b HTTP/1.1"] * 2


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("POST", 1), ("PUT", 1), ("DELETE", 1)])
def test_a_call_that_fails_again_or_might_happen_twice_is_an_error(method: str, sent: int) -> None:
    with answering(b"", b"") as (url, requests), closing(connection(url)) as sending:
        with pytest.raises(httpx.NetworkError):
            sending.request(method, f"{url}/tasks", content=b"{}")
        assert len(requests) == sent


def test_a_server_that_is_not_there_and_one_that_is_silent_are_told_apart() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(connection("http://127.0.0.1")) as sending, pytest.raises(httpx.ReadTimeout):
            sending.request("GET", f"http://127.0.0.1:{port}/", timeout=httpx.Timeout(0.05))
    with closing(connection("http://127.0.0.1")) as sending, pytest.raises(httpx.ConnectError):
        sending.request("GET", f"http://127.0.0.1:{port}/")


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"
    with answering(moved) as (url, requests), closing(connection(url)) as sending:
        answer = sending.request("GET", f"{url}/tasks/1")

    assert (answer.status_code, answer.is_success, len(requests)) == (302, False, 1)


def test_text_is_sent_as_utf_8_and_read_as_far_as_it_is() -> None:
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, object]:
        seen.append(request)
        return 200, "gr\u00fcn"

    with scripted(answer) as server, closing(connection(server.url)) as sending:
        got = sending.request("POST", f"{server.url}/tasks", content='{"a": "ö"}', headers={"X-A": "b"})

    assert (seen[0].body, got.text) == ('{"a": "ö"}', "gr\u00fcn")


PROXIES: list[tuple[dict[str, str], str, Callable[[object], bool]]] = [
    ({"HTTP_PROXY": "http://127.0.0.1:9"}, "http://conductor.example/api", lambda made: isinstance(made, httpx.Client)),
    ({"ALL_PROXY": "http://127.0.0.1:9"}, "http://conductor.example/api", lambda made: isinstance(made, httpx.Client)),
    ({"HTTPS_PROXY": "http://127.0.0.1:9"}, "http://conductor.example/api", lambda made: isinstance(made, Connection)),
    (
        {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "conductor.example"},
        "http://conductor.example/api",
        lambda made: isinstance(made, Connection),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "url", "fits"), PROXIES)
def test_httpx_is_used_if_a_proxy_is_set_for_the_server(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], url: str, fits: Callable[[object], bool]
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    with closing(open_connection(url, connect_timeout=5, read_timeout=5)) as made:
        assert fits(made)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a certificate of 127.0.0.1 that is not trusted yet, with its key."""
    file = tmp_path / "server.pem"
    wanted = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *wanted]
    subprocess.run(
        [*make, "-keyout", file, "-out", tmp_path / "certificate"], check=True, capture_output=True
    )
    file.write_bytes(file.read_bytes() + (tmp_path / "certificate").read_bytes())
    return file


@contextmanager
def answering_with_tls(certificate: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                taken, _ = server.accept()
                with context.wrap_socket(taken, server_side=True) as secure:
                    # Headers and body come one after the other.
                    while not secure.recv(65536).endswith(b"{}"):
                        pass
                    secure.sendall(OK)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}/api"
        thread.join(30)


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_trusted_as_httpx_trusts_it(
    monkeypatch: pytest.MonkeyPatch, certificate: Path, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with answering_with_tls(certificate) as url, closing(connection(url)) as sending:
        if trusted:
            assert sending.request("POST", f"{url}/tasks", content=b"{}").text == "{}"
            return
        with pytest.raises(httpx.NetworkError, match="CERTIFICATE_VERIFY_FAILED"):
            sending.request("POST", f"{url}/tasks", content=b"{}")
