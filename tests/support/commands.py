"""Perago's commands as a user calls them, from a shell in a folder of their own, with or without a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from perago.cli import app

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
        return subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> Said:
        with self.start(*arguments) as process:
            try:
                out, err = process.communicate(timeout=WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Said(process.returncode, out, err)

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
        process = subprocess.Popen(
            [sys.executable, "-m", "perago", *arguments],
            cwd=self.folder,
            env={**self.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
        )
        os.close(secondary)
        shown = bytearray()
        # The terminal's end is an error on Linux, once the last process that has it open is gone.
        while data := _read(primary):
            shown += data
        os.close(primary)
        return Said(process.wait(WAIT_SECONDS), shown.decode(errors="replace"))


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
