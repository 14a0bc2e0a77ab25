"""Where the processes of the tests come from: a Python that has imported what they need, and is forked for each.

A new Python takes up to half a second of a core to import it all, and a test run starts hundreds of workers and commands.
The nursery runs nothing of its own and has one thread, and whoever was forked goes on as a program from its first line to
the exit of its Python: so it is as good as a new process.  New processes are what the pages of the documentation and the
wheel's tests run, commands that are watched while they run, and those whose environment makes another Python of them
(`is_like_ours`).

A process that has ended is not reaped before its exit code is asked for, so that its pid stays its own.
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
class Birth:
    """What a process begins with, besides its three streams."""

    program: Literal["worker", "perago", "host"]
    arguments: tuple[str, ...]
    environ: dict[str, str]
    folder: Path = REPOSITORY_ROOT


def is_like_ours(environ: Mapping[str, str]) -> bool:
    """Whether a Python that is started in this environment is like the nursery: it reads these as it starts."""
    return _read_at_start(environ) == _read_at_start(os.environ)


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


# --- in the test -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Forked:
    """A process that the nursery began, as `subprocess` would have it."""

    pid: int
    nursery: Nursery = field(repr=False)
    returncode: int | None = None
    _death: int = -1

    def __post_init__(self) -> None:
        self._death = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended."""
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
        death = select.poll()
        death.register(self._death, select.POLLIN)
        if death.poll(None if seconds is None else seconds * 1000):
            self.returncode = self.nursery.exit_code_of(self.pid)
            os.close(self._death)
        return self.returncode


class Nursery:
    """The test's end of it."""

    def __init__(self, line: socket.socket) -> None:
        self._socket = line
        self._line = Connection(os.dup(line.fileno()))
        self._asking = threading.Lock()

    @classmethod
    def of_this_process(cls) -> Nursery:
        """One whose children are as this process is now, which has one thread; it ends with this process."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            os._exit(serve(theirs))
        theirs.close()
        return cls(ours)

    def begin(self, birth: Birth, streams: Streams) -> Forked:
        """Begin a process with these as its standard streams; the caller closes its own ends."""
        with self._asking:
            self._line.send(birth)
            socket.send_fds(self._socket, [b"."], streams)
            return Forked(self._line.recv(), self)

    def exit_code_of(self, pid: int) -> int:
        """How a process that has ended did so."""
        with self._asking:
            self._line.send(pid)
            code: int = self._line.recv()
        return code

    def close(self) -> None:
        self._line.close()
        self._socket.close()


@cache
def nursery() -> Nursery:
    """The one of this test process."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.fork_server", str(theirs.fileno())],
            cwd=REPOSITORY_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    made = Nursery(ours)
    atexit.register(process.wait)
    atexit.register(made.close)
    return made


# --- in the nursery --------------------------------------------------------------------------------------------------

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
    """Import what is needed, and serve."""
    # Here, since a Python that a worker spawns imports this module, and needs little of it.
    for name in NEEDED:
        import_module(name)
    return serve(socket.socket(fileno=int(descriptor)))


def serve(passed: socket.socket) -> int:
    """Begin processes and tell how they ended, until nobody asks any more; returns in each of the processes too."""
    line = Connection(os.dup(passed.fileno()))
    gc.collect()
    # What is here is here for good: looking at it again in every process would copy its memory.
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
            return _be(asked, streams)
        for stream in streams:
            os.close(stream)
        line.send(pid)


def _be(birth: Birth, streams: list[int]) -> int:
    """Be a program of its own, with the environment, the folder and the streams that it was given."""
    os.environ.clear()
    os.environ.update(birth.environ)
    time.tzset()
    os.chdir(birth.folder)
    _take(streams)
    if birth.program == "host":
        from tests.support.processes.process_jobs import work

        line = Connection(os.dup(0))
        # What it starts would inherit its first stream, and keep the line open when it is gone.
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        return work(line)
    if birth.program == "worker":
        from perago.runtime.process.process_setup import mark_main_program
        from tests.support.processes import worker_main

        mark_main_program()
        return worker_main.main(*birth.arguments)
    # As after `python -m perago`: what it is called, where it looks for modules, and what its children import again.
    program = import_module("perago.__main__")
    sys.modules["__main__"] = program
    sys.argv[:] = [str(program.__file__), *birth.arguments]
    sys.path[0] = str(birth.folder)
    program.main()
    return 0


def _take(streams: list[int]) -> None:
    """Read and write these, buffered as a new Python has it."""
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
