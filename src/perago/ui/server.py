"""Serves the page from a thread in this process."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from perago.errors import RuntimeConfigError
from perago.ui.app import make_app
from perago.ui.auth import is_loopback
from perago.ui.data_source import DataSource
from perago.ui.rendering import link

PORT = 8642
"""The default port. If it is in use, any free port is used."""
_LONGEST_START_SECONDS = 30.0
_LONGEST_STOP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Served:
    """The address at which the UI is served, and the access token if one is needed."""

    host: str
    port: int
    token: str | None

    def address(self, path: str = "/", /, **query: str) -> str:
        """Return the URL of a page for the browser."""
        host = self.host.strip("[]")
        where = f"[{host}]" if ":" in host else host
        return f"http://{where}:{self.port}{link(path, **query, token=self.token)}"


@contextmanager
def serving(
    source: DataSource,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    new_token: Callable[[], str] = lambda: secrets.token_urlsafe(32),
) -> Iterator[Served]:
    """Serve the page while the block runs. Raises `RuntimeConfigError` if the address is not available."""
    listening = _bind(host, port)
    served = Served(host, listening.getsockname()[1], None if is_loopback(host) else new_token())
    config = uvicorn.Config(
        make_app(source, host=host, token=served.token),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name="perago-ui", daemon=True
    )
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield served
    finally:
        source.closing.set()
        server.should_exit = True
        thread.join(_LONGEST_STOP_SECONDS)
        listening.close()
        source.close()


def _bind(host: str, port: int | None) -> socket.socket:
    wanted = [PORT, 0] if port is None else [port]
    for number in wanted:
        try:
            family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), number, type=socket.SOCK_STREAM)[
                0
            ]
            return socket.create_server(address[:2], family=family)
        except OSError as error:
            problem = error
    raise RuntimeConfigError(
        f"cannot listen on {host}:{wanted[-1]}: {problem.strerror or problem}; choose another --host or --port"
    ) from problem


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    until = time.monotonic() + _LONGEST_START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise RuntimeConfigError("the page could not be served: it did not start")
        time.sleep(0.01)
