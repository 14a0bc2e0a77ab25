"""The fork server: a process with all imports done, from which a worker's executors are forked.

A new Python process spends half a second of CPU time on imports that a fork simply inherits.  The fork server is forked
from the worker before the worker has loaded any task or started a thread.  It runs no user code, opens no files or
connections for executors and has a single thread, so executors forked from it behave like new processes.

    worker                       fork server                  executor
    begin executor 3, pipes ──▶  forks                  ──▶   runs `run_executor`
                            ◀──  its pid
    (sees it die)
    ask for its exit code   ──▶  reaps it
                            ◀──  its exit code

An executor is not reaped until the worker asks for its exit code, so its pid cannot be reused while the worker may still
kill it.
The fork server adopts the processes that a dead executor leaves running, and kills them.
If the fork server dies, running executors continue, and new ones are spawned without it.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, NoReturn

from perago.runtime.process.process_setup import (
    ProcessEnvironment,
    adopt_orphans,
    end_descendants,
    may_fork,
    start_process_group,
)
from perago.runtime.process.stdio_state import flush_output
from perago.runtime.root.state_dir import children
from perago.runtime.worker.executor import ExecutorSpec, forked_executor_main

log = logging.getLogger("perago.slot")

ANSWER_SECONDS = 30.0
"""Time limit in seconds for a reply from the fork server.  Only a server that is stopped or far too slow exceeds it."""

_BEGIN, _REAP = b"B", b"R"
_DONE, _FAILED = b"D", b"F"
_HEADER = struct.Struct("!cI")
_NUMBER = struct.Struct("!q")


class ForkServerGone(OSError):
    """The fork server does not respond.  No further requests are sent to it."""


@dataclass(slots=True, eq=False)
class Forked:
    """A forked executor process.  It has the part of multiprocessing's `Process` interface that the worker uses."""

    pid: int
    server: ForkServer
    exitcode: int | None = None
    sentinel: ClassVar[int] = -1
    """Unused, but part of the interface: callers wait on a pidfd instead."""

    def join(self) -> None:
        """Wait until the process is dead, then set `exitcode`."""
        with suppress(ProcessLookupError):
            death = os.pidfd_open(self.pid)
            try:
                wait([death])
            finally:
                os.close(death)
        self.exitcode = self.server.exit_code_of(self.pid)


class ForkServer:
    """The worker's connection to its fork server.  Thread-safe."""

    NOT_KNOWN: ClassVar[int] = 255
    """The exit code reported for an executor that outlived its fork server."""

    def __init__(self, control: socket.socket) -> None:
        control.settimeout(ANSWER_SECONDS)
        self._control = control
        self._lock = threading.Lock()
        self._gone = False

    def begin(self, spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> Forked:
        """Fork an executor that communicates over `pipe` and prints to `output_fd`.  The caller closes both."""
        # The worker may have changed its working directory since the fork, for example to a resumed run's folder.
        request = pickle.dumps((ProcessEnvironment.current(), pickle.dumps((spec, number))))
        return Forked(self._ask(_BEGIN, request, [pipe.fileno(), output_fd]), self)

    def exit_code_of(self, pid: int) -> int:
        """Reap a dead executor and return its exit code."""
        try:
            return self._ask(_REAP, _NUMBER.pack(pid))
        except ForkServerGone:
            return self.NOT_KNOWN

    def _ask(self, what: bytes, request: bytes, fds: list[int] | None = None) -> int:
        with self._lock:
            if self._gone:
                raise ForkServerGone("the fork server is gone")
            try:
                socket.send_fds(self._control, [_HEADER.pack(what, len(request))], fds or [])
                self._control.sendall(request)
                kind, data = _receive(self._control)
            except (EOFError, OSError) as error:
                self._gone = True
                # A late reply would be mistaken for the reply to the next request.
                self._control.close()
                raise ForkServerGone(f"the fork server does not answer: {error}") from error
        if kind == _FAILED:
            number, text = pickle.loads(data)
            raise OSError(number, text)
        answer: int = _NUMBER.unpack(data)[0]
        return answer


_fork_servers: dict[int, ForkServer] = {}
"""Fork servers, keyed by process id because a fork inherits its parent's entry.

A process starts at most one fork server, and keeps it until the process exits.
"""


def prepare(import_all: Callable[[], object]) -> None:
    """Start a fork server if this process may fork.  `import_all` imports the modules that executors need.

    Must be called before the process starts a thread or runs user code.
    """
    if os.getpid() in _fork_servers or not may_fork():
        return
    import_all()
    if not may_fork():
        log.debug("forking disabled: an import started a thread; executors are spawned")
        return
    ours, theirs = socket.socketpair()
    flush_output()
    if os.fork() == 0:
        ours.close()
        _serve(theirs)
    theirs.close()
    _fork_servers[os.getpid()] = ForkServer(ours)


def current_fork_server() -> ForkServer | None:
    """Return this process's fork server, or None."""
    return _fork_servers.get(os.getpid())


# --- in the fork server ----------------------------------------------------------------------------------------------


def _serve(control: socket.socket) -> NoReturn:
    """Fork and reap executors on request until the worker is gone."""
    # Terminals and service managers send signals to every process, but the worker decides when this one ends.
    start_process_group("perago-template")
    code = 1
    try:
        gc.collect()
        # These objects are never freed: collecting garbage in each child would only copy their memory pages.
        gc.freeze()
        adopt_orphans()
        ours = {_start_tracker(control)}
        while True:
            _answer(control, ours)
    except EOFError:
        code = 0
    finally:
        os._exit(code)


def _start_tracker(control: socket.socket) -> int:
    """Start one multiprocessing resource tracker for all executors.

    Otherwise each executor would start its own tracker, as a new Python process.

    The tracker must not be in an executor's process group: it removes resources that a killed executor's pools left behind.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # The tracker exits when every process has closed the other end of its pipe.
            os.close(theirs)
            control.close()
            start_process_group("perago-tracker")
            resource_tracker.main(ours)
        finally:
            os._exit(0)
    os.close(ours)
    # `ensure_running` checks these before it starts a tracker.
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    tracker._fd, tracker._pid = theirs, pid
    return pid


def _answer(control: socket.socket, ours: set[int]) -> None:
    header, fds, _, _ = socket.recv_fds(control, _HEADER.size, 2)
    what, length = _HEADER.unpack(header + _read_exactly(control, _HEADER.size - len(header)))
    request = _read_exactly(control, length)
    try:
        if what == _BEGIN:
            number = os.fork()
            if number == 0:
                control.close()
                forked_executor_main(request, Connection(fds[0]), Connection(fds[1], readable=False))
            ours.add(number)
        else:
            dead = _NUMBER.unpack(request)[0]
            number = os.waitstatus_to_exitcode(os.waitpid(dead, 0)[1])
            ours.discard(dead)
            _kill_adopted(ours)
    except OSError as error:
        _send(control, _FAILED, pickle.dumps((error.errno or 0, error.strerror or str(error))))
        return
    finally:
        for fd in fds:
            os.close(fd)
    _send(control, _DONE, _NUMBER.pack(number))


def _kill_adopted(ours: set[int]) -> None:
    """Kill the processes that dead executors left running.

    Processes of living executors are not affected: they are still descendants of their executor.
    """
    for pid in children() - ours:
        end_descendants(pid)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# --- both sides ------------------------------------------------------------------------------------------------------


def _send(control: socket.socket, kind: bytes, data: bytes) -> None:
    control.sendall(_HEADER.pack(kind, len(data)) + data)


def _receive(control: socket.socket) -> tuple[bytes, bytes]:
    kind, length = _HEADER.unpack(_read_exactly(control, _HEADER.size))
    return kind, _read_exactly(control, length)


def _read_exactly(control: socket.socket, length: int) -> bytes:
    """Read exactly `length` bytes.  Raises `EOFError` if the other side is gone."""
    data = b""
    while len(data) < length:
        if not (more := control.recv(length - len(data))):
            raise EOFError("the other side is gone")
        data += more
    return data
