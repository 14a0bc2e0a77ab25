"""Where the worker processes of the tests come from: a Python that has imported what they need, and is forked for each.

A new Python takes up to half a second of a core to import it all, and a test run starts hundreds of workers.  The nursery
runs nothing of its own and has one thread, and whoever was forked goes on as a program from its first line to the exit of
its Python: so a worker is as good as a new process.  What users start, `perago` and its commands, the tests start anew.

A worker that has ended is not reaped before its exit code is asked for, so that its pid stays its own.
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
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path

from perago.runtime.process.program import is_ours

REPOSITORY_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Birth:
    """What a worker begins with; both of its streams go to `log`."""

    arguments: tuple[str, ...]
    environ: dict[str, str]
    log: Path


# --- in the test -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """A worker's process, as `subprocess` would have it."""

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
            raise subprocess.TimeoutExpired(["worker", str(self.pid)], timeout or 0)
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

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno())],
                cwd=REPOSITORY_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._line = Connection(ours.detach())

    def begin(self, birth: Birth) -> WorkerProcess:
        """Begin a worker."""
        self._line.send(birth)
        return WorkerProcess(self._line.recv(), self)

    def exit_code_of(self, pid: int) -> int:
        """How a worker that has ended did so."""
        self._line.send(pid)
        code: int = self._line.recv()
        return code

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    """The one of this test process."""
    made = Nursery()
    atexit.register(made.close)
    return made


# --- in the nursery --------------------------------------------------------------------------------------------------


def main(descriptor: str) -> int:
    """Begin workers and tell how they ended, until the tests are over; returns in each of the workers too."""
    # Here, since a Python that a worker spawns imports this module, and needs little of it.
    import perago.lake.lakefs.lake
    import perago.lake.local.lake
    import perago.orchestrator.conductor.http
    import perago.orchestrator.conductor.orchestrator
    import perago.orchestrator.local.orchestrator  # noqa: F401
    from tests.support import worker_main

    line = Connection(int(descriptor))
    gc.collect()
    # What is here is here for good: looking at it again in every worker would copy its memory.
    gc.freeze()
    while True:
        try:
            asked = line.recv()
        except (EOFError, KeyboardInterrupt):
            return 0
        if isinstance(asked, int):
            line.send(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
        elif (pid := os.fork()) != 0:
            line.send(pid)
        else:
            line.close()
            _take(asked)
            return worker_main.main(*asked.arguments)


def _take(birth: Birth) -> None:
    """Be a program of its own, with the environment and the streams that it was given."""
    is_ours()
    os.environ.clear()
    os.environ.update(birth.environ)
    with birth.log.open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
