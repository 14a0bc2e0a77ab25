"""A fork server for the processes of the tests: a Python that has imported what they need, forked for each of them.

A new Python takes up to half a second of a core to import it all, and a test run starts hundreds of workers and commands.
The fork server runs nothing else and has one thread, and a forked process runs a program from its first line to the exit of
its Python: so it is as good as a new process.  Tests use really new processes for the pages of the documentation and the
wheel, for commands that are watched while they run, and for environments that change how Python itself starts
(`starts_like_this_process`).

A process that has ended is reaped when its exit code is requested, so its pid is not reused before.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

REPOSITORY_ROOT = Path(__file__).parents[3]
Streams = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Launch:
    """The program, arguments, environment and folder of a new process."""

    program: Literal["worker", "perago", "host"]
    arguments: tuple[str, ...]
    environ: dict[str, str]
    folder: Path = REPOSITORY_ROOT


def starts_like_this_process(environ: Mapping[str, str]) -> bool:
    """Return whether Python reads the same variables at its start in this environment as the fork server did."""
    return _read_at_start(environ) == _read_at_start(os.environ)


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


# --- in the test -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Forked:
    """A process of the fork server, with the interface of `subprocess`."""

    pid: int
    fork_server: ForkServer = field(repr=False)
    returncode: int | None = None
    _pidfd: int = -1

    def __post_init__(self) -> None:
        self._pidfd = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit code."""
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(["forked", str(self.pid)], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is not None:
            return self.returncode
        ended = select.poll()
        ended.register(self._pidfd, select.POLLIN)
        if ended.poll(None if seconds is None else seconds * 1000):
            self.returncode = self.fork_server.exit_code_of(self.pid)
            os.close(self._pidfd)
        return self.returncode


class ForkServer:
    """The test's connection to a fork server."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self._line = Connection(os.dup(line.fileno()))
        self._lock = threading.Lock()

    @classmethod
    def of_this_process(cls) -> ForkServer:
        """Fork a server whose children start as this single-threaded process is now; it ends with this process."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            os._exit(serve(theirs))
        theirs.close()
        return cls(ours)

    def begin(self, launch: Launch, streams: Streams) -> Forked:
        """Start a process with these standard streams; the caller closes its own ends."""
        with self._lock:
            self._line.send(launch)
            socket.send_fds(self._socket, [b"."], streams)
            return Forked(self._line.recv(), self)

    def exit_code_of(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        with self._lock:
            self._line.send(pid)
            code: int = self._line.recv()
        return code

    def close(self) -> None:
        self._line.close()
        self._socket.close()


@cache
def fork_server() -> ForkServer:
    """Return the fork server of this test process."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.fork_server", str(theirs.fileno())],
            cwd=REPOSITORY_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    made = ForkServer(ours)
    atexit.register(process.wait)
    atexit.register(made.close)
    return made


# --- in the fork server -----------------------------------------------------------------------------------------------

NEEDED = (
    "perago.__main__",
    "perago.lake.lakefs.lake",
    "perago.lake.local.lake",
    "perago.orchestrator.conductor.http",
    "perago.orchestrator.conductor.orchestrator",
    "perago.orchestrator.local.orchestrator",
    "tests.support.processes.worker_main",
    *(f"perago.cli.{name}" for name in ("check", "doctor", "put", "run", "runs", "start", "submit")),
)


def main(descriptor: str) -> int:
    """Import everything that is needed, then serve."""
    # Not at the top: a Python that a worker spawns imports this module, and needs little of it.
    for name in NEEDED:
        import_module(name)
    return serve(socket.socket(fileno=int(descriptor)))


def serve(passed: socket.socket) -> int:
    """Start processes and report their exit codes until the connection closes; returns in each of the processes too."""
    line = Connection(os.dup(passed.fileno()))
    gc.collect()
    # Everything here stays: collecting it again in every process would copy its memory.
    gc.freeze()
    while True:
        try:
            asked = line.recv()
        except (EOFError, KeyboardInterrupt):
            return 0
        if isinstance(asked, int):
            line.send(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
            continue
        streams = socket.recv_fds(passed, 1, 3)[1]
        if (pid := os.fork()) == 0:
            line.close()
            passed.close()
            return _run_program(asked, streams)
        for stream in streams:
            os.close(stream)
        line.send(pid)


def _run_program(launch: Launch, streams: list[int]) -> int:
    """Run the program with its environment, folder and streams."""
    os.environ.clear()
    os.environ.update(launch.environ)
    time.tzset()
    os.chdir(launch.folder)
    _replace_streams(streams)
    if launch.program == "host":
        from tests.support.processes.worker_main import work

        line = Connection(os.dup(0))
        # Its children would inherit the first stream, and keep the connection open after its end.
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        return work(line)
    if launch.program == "worker":
        from perago.runtime.process.process_setup import mark_main_program
        from tests.support.processes import worker_main

        mark_main_program()
        return worker_main.main(*launch.arguments)
    # As after `python -m perago`: its name, its module path, and what its children import again.
    program = import_module("perago.__main__")
    sys.modules["__main__"] = program
    sys.argv[:] = [str(program.__file__), *launch.arguments]
    sys.path[0] = str(launch.folder)
    program.main()
    return 0


def _replace_streams(streams: list[int]) -> None:
    """Use these as standard streams, buffered as in a new Python."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        before = getattr(sys, name)
        by_lines = name == "stderr" or (name == "stdout" and os.isatty(number))
        # The old one stays open behind it, since it owns the descriptor.
        made = open(  # noqa: SIM115 - as long as the process
            number,
            mode,
            buffering=1 if by_lines else -1,
            encoding=before.encoding,
            errors=before.errors,
            closefd=False,
        )
        setattr(sys, name, made)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
