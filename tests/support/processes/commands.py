"""Perago's commands as a user runs them, in a shell in a folder, with or without a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from perago.cli import app
from tests.support.processes.fork_server import Forked, Launch, fork_server, starts_like_this_process

WAIT_SECONDS = 300
"""Only a command that hangs takes this long, even on a busy machine."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command; on a terminal both streams are in `out`."""

    code: int
    out: str
    err: str = ""


def _without_servers() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PERAGO_", "LAKECTL_", "CONDUCTOR_"))
    }


@dataclass(slots=True)
class Shell:
    """A shell in a folder; only the embedded servers are configured unless `environ` names others."""

    folder: Path
    environ: dict[str, str] = field(default_factory=_without_servers)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a new process; its streams can be read while it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> CommandResult:
        return run_perago(arguments, folder=self.folder, environ=self.environ)

    def run_here(self, *arguments: str) -> CommandResult:
        """Run a command in this process, which is quicker; it must not start processes."""
        elsewhere = {name: self.environ.get(name) for name in {*os.environ, *self.environ}}
        path = list(sys.path)
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, arguments, env=elsewhere)
        # A command adds the current folder to the module path.
        sys.path[:] = path
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return CommandResult(done.exit_code, done.stdout, done.stderr)

    def data(self, *arguments: str) -> Any:
        """Return what a command prints with --json; it may fail."""
        said = self.run(*arguments, "--json")
        return json.loads(said.out)

    def on_a_terminal(self, *arguments: str, typed: str = "") -> CommandResult:
        """Run a command with a terminal of 100 columns as all of its streams, on which `typed` is already typed."""
        primary, secondary = pty.openpty()
        os.write(primary, typed.encode())
        environ = {**self.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        assert starts_like_this_process(environ)
        launch = Launch("perago", arguments, environ, self.folder)
        process = fork_server().begin(launch, (secondary, secondary, secondary))
        os.close(secondary)
        [shown] = _read_to_the_end(process, [primary])
        return CommandResult(process.wait(WAIT_SECONDS), shown)


def run_perago(
    arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], stdin: int | None = None
) -> CommandResult:
    """Run a command until it and all processes that share its streams have ended."""
    if not starts_like_this_process(environ):
        return _run_in_new_process(arguments, folder, environ, stdin)
    with open(os.devnull) as nothing:
        (out_end, out), (err_end, err) = os.pipe(), os.pipe()
        launch = Launch("perago", tuple(arguments), dict(environ), folder)
        process = fork_server().begin(launch, (nothing.fileno() if stdin is None else stdin, out, err))
        os.close(out)
        os.close(err)
    said = _read_to_the_end(process, [out_end, err_end])
    return CommandResult(process.wait(WAIT_SECONDS), *said)


def _run_in_new_process(
    arguments: Sequence[str], folder: Path, environ: Mapping[str, str], stdin: int | None
) -> CommandResult:
    done = subprocess.run(
        [sys.executable, "-m", "perago", *arguments],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


def _read_to_the_end(process: Forked, streams: list[int]) -> list[str]:
    """Read each stream to its end, and close it."""
    found = {stream: bytearray() for stream in streams}
    latest = time.monotonic() + WAIT_SECONDS
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select(latest - time.monotonic()):
                if data := _read(key.fd):
                    found[key.fd] += data
                else:
                    selector.unregister(key.fd)
                    os.close(key.fd)
            if time.monotonic() > latest:
                process.kill()
                raise subprocess.TimeoutExpired(["perago"], WAIT_SECONDS)
    return [data.decode(errors="replace") for data in found.values()]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # On Linux, reading a terminal fails once the last process that had it open is gone.
        return b""


SERVERS = {
    "LAKECTL_SERVER_ENDPOINT_URL": "http://lake.example",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "AKIA",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "lake/secret+1",
    "CONDUCTOR_SERVER_URL": "https://user:in-the-url@conductor.example/api",
    "CONDUCTOR_AUTH_KEY": "key",
    "CONDUCTOR_AUTH_SECRET": "conductor-secret",
}
"""An environment with both servers, and secrets wherever one is possible."""
