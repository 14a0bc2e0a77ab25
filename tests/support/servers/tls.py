"""A server with a certificate of its own, which nobody trusts until a test says so."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def self_signed(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that nobody trusts yet, with its key."""
    file = folder / "server.pem"
    wanted = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *wanted]
    subprocess.run([*make, "-keyout", file, "-out", folder / "certificate"], check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + (folder / "certificate").read_bytes())
    return file


@contextmanager
def answering_with_tls(certificate: Path, *, until: bytes) -> Iterator[str]:
    """A server that answers one request, which ends with `until`, with an empty JSON object."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                taken, _ = server.accept()
                with context.wrap_socket(taken, server_side=True) as secure:
                    # Headers and body come one after the other.
                    while not secure.recv(65536).endswith(until):
                        pass
                    secure.sendall(OK)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)
