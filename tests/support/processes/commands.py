"""Perago's commands as a user calls them, from a shell in a folder of their own, with or without a terminal."""

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
from tests.support.processes.fork_server import Birth, Forked, is_like_ours, nursery

WAIT_SECONDS = 300
"""Only a command that hangs takes so long, on however busy a machine."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command ended with and printed; on a terminal both streams are one, in `out`."""

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
    """A shell in a folder; nothing but the embedded servers is configured unless `environ` says so."""

    folder: Path
    environ: dict[str, str] = field(default_factory=_without_servers)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command, whose streams can be read while it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> Said:
        return run_perago(arguments, folder=self.folder, environ=self.environ)

    def look(self, *arguments: str) -> Said:
        """Run a command that starts no process here, which is quicker."""
        elsewhere = {name: self.environ.get(name) for name in {*os.environ, *self.environ}}
        path = list(sys.path)
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(app, arguments, env=elsewhere)
        # Task modules are looked for in the folder that a command is given in.
        sys.path[:] = path
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    def data(self, *arguments: str) -> Any:
        """What a command that may fail prints with --json."""
        said = self.run(*arguments, "--json")
        return json.loads(said.out)

    def on_a_terminal(self, *arguments: str) -> Said:
        """Run a command with a terminal of 100 columns as all of its streams."""
        primary, secondary = pty.openpty()
        environ = {**self.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
        assert is_like_ours(environ)
        birth = Birth("perago", arguments, environ, self.folder)
        process = nursery().begin(birth, (secondary, secondary, secondary))
        os.close(secondary)
        [shown] = _read_to_the_end(process, [primary])
        return Said(process.wait(WAIT_SECONDS), shown)


def run_perago(
    arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], stdin: int | None = None
) -> Said:
    """Run a command to its end, and to the end of all that it has started and lets write to its streams."""
    if not is_like_ours(environ):
        return _run_anew(arguments, folder, environ, stdin)
    with open(os.devnull) as nothing:
        (out_end, out), (err_end, err) = os.pipe(), os.pipe()
        birth = Birth("perago", tuple(arguments), dict(environ), folder)
        process = nursery().begin(birth, (nothing.fileno() if stdin is None else stdin, out, err))
        os.close(out)
        os.close(err)
    said = _read_to_the_end(process, [out_end, err_end])
    return Said(process.wait(WAIT_SECONDS), *said)


def _run_anew(arguments: Sequence[str], folder: Path, environ: Mapping[str, str], stdin: int | None) -> Said:
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
    return Said(done.returncode, done.stdout, done.stderr)


def _read_to_the_end(process: Forked, streams: list[int]) -> list[str]:
    """All that comes out of each; they are closed then."""
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
        # A terminal's end is an error on Linux, once the last process that has it open is gone.
        return b""
