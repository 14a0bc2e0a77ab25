"""The template of a worker's executors: a process that has imported all that they need, and is forked for each of them.

A new Python takes half a second of a core to import what a fork has at once.  The template is forked from the worker's own
program, before that has read any task or begun a thread, and stays as it is: it runs nothing of an author's, opens nothing,
and has one thread.  So its children are as good as new processes.

    worker                       template                     executor
    begin executor 3, pipes ──▶  forks                  ──▶   runs `run_executor`
                            ◀──  its pid
    (sees it die)
    how did it end          ──▶  reaps it
                            ◀──  its exit code

An executor is not reaped before the worker asks, so that its pid is nobody else's while the worker may still kill by it.
What an executor leaves running when it ends comes to the template, which adopts it and kills it.
A template that is gone takes nobody along: executors that run go on, and new ones are started without it.
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
    Standing,
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
"""Only a template that is stopped or hopelessly slow takes so long."""

_BEGIN, _REAP = b"B", b"R"
_DONE, _FAILED = b"D", b"F"
_HEADER = struct.Struct("!cI")
_NUMBER = struct.Struct("!q")


class ForkServerGone(OSError):
    """The template does not answer, and will not."""


@dataclass(slots=True, eq=False)
class Forked:
    """An executor process that a template began; as multiprocessing has it, as far as links use that."""

    pid: int
    template: ForkServer
    exitcode: int | None = None
    sentinel: ClassVar[int] = -1
    """There is always better to wait on."""

    def join(self) -> None:
        """Wait until it is dead, and learn how it ended."""
        with suppress(ProcessLookupError):
            death = os.pidfd_open(self.pid)
            try:
                wait([death])
            finally:
                os.close(death)
        self.exitcode = self.template.exit_code_of(self.pid)


class ForkServer:
    """A worker's end; may be used from any thread."""

    NOT_KNOWN: ClassVar[int] = 255
    """The exit code of an executor whose template has gone before it."""

    def __init__(self, control: socket.socket) -> None:
        control.settimeout(ANSWER_SECONDS)
        self._control = control
        self._asking = threading.Lock()
        self._gone = False

    def begin(self, spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> Forked:
        """Begin an executor that speaks over `pipe` and prints to `output_fd`; the caller closes both."""
        # The worker may have gone to another folder since it was forked: to that of a run that it resumes, say.
        request = pickle.dumps((Standing.here(), pickle.dumps((spec, number))))
        return Forked(self._ask(_BEGIN, request, [pipe.fileno(), output_fd]), self)

    def exit_code_of(self, pid: int) -> int:
        """How an executor that is dead ended."""
        try:
            return self._ask(_REAP, _NUMBER.pack(pid))
        except ForkServerGone:
            return self.NOT_KNOWN

    def _ask(self, what: bytes, request: bytes, fds: list[int] | None = None) -> int:
        with self._asking:
            if self._gone:
                raise ForkServerGone("the template of the executors is gone")
            try:
                socket.send_fds(self._control, [_HEADER.pack(what, len(request))], fds or [])
                self._control.sendall(request)
                kind, said = _receive(self._control)
            except (EOFError, OSError) as error:
                self._gone = True
                # A late answer would be taken for that to the next question.
                self._control.close()
                raise ForkServerGone(f"the template of the executors does not answer: {error}") from error
        if kind == _FAILED:
            number, text = pickle.loads(said)
            raise OSError(number, text)
        answer: int = _NUMBER.unpack(said)[0]
        return answer


_templates: dict[int, ForkServer] = {}
"""By process, since a fork inherits what is another's; it has one at the most, which lives as long as it does."""


def prepare(bring: Callable[[], object]) -> None:
    """Have executors of this process forked from a template, if that can be; `bring` imports what they need.

    To be called before the process begins a thread or runs anything of an author's.
    """
    if os.getpid() in _templates or not may_fork():
        return
    bring()
    if not may_fork():
        log.debug("executors are started without a template: an import has begun a thread")
        return
    ours, theirs = socket.socketpair()
    flush_output()
    if os.fork() == 0:
        ours.close()
        _serve(theirs)
    theirs.close()
    _templates[os.getpid()] = ForkServer(ours)


def current_fork_server() -> ForkServer | None:
    """The template of this process."""
    return _templates.get(os.getpid())


# --- in the template -------------------------------------------------------------------------------------------------


def _serve(control: socket.socket) -> NoReturn:
    """Begin executors and tell how they ended, until the worker is gone."""
    # A terminal and a service manager send these to every process: when to end is the worker's decision.
    start_process_group("perago-template")
    code = 1
    try:
        gc.collect()
        # What is here is here for good: looking at it again in every child would copy its memory.
        gc.freeze()
        adopt_orphans()
        ours = {_begin_tracker(control)}
        while True:
            _answer(control, ours)
    except EOFError:
        code = 0
    finally:
        os._exit(code)


def _begin_tracker(control: socket.socket) -> int:
    """Begin multiprocessing's resource tracker for the executors, which would each start one: a new Python.

    Here, and so not in the group of an executor that is killed: it removes what the killed one's pools have left.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            # It ends when nobody has the other end of its pipe open any more.
            os.close(theirs)
            control.close()
            start_process_group("perago-tracker")
            resource_tracker.main(ours)
        finally:
            os._exit(0)
    os.close(ours)
    # What `ensure_running` looks at before it starts one.
    tracker: Any = vars(resource_tracker)["_resource_tracker"]
    tracker._fd, tracker._pid = theirs, pid
    return pid


def _answer(control: socket.socket, ours: set[int]) -> None:
    header, fds, _, _ = socket.recv_fds(control, _HEADER.size, 2)
    what, length = _HEADER.unpack(header + _exactly(control, _HEADER.size - len(header)))
    request = _exactly(control, length)
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
            _end_adopted(ours)
    except OSError as error:
        _send(control, _FAILED, pickle.dumps((error.errno or 0, error.strerror or str(error))))
        return
    finally:
        for fd in fds:
            os.close(fd)
    _send(control, _DONE, _NUMBER.pack(number))


def _end_adopted(ours: set[int]) -> None:
    """Kill what dead executors have left; what a living one has started is below that one."""
    for pid in children() - ours:
        end_descendants(pid)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


# --- both ------------------------------------------------------------------------------------------------------------


def _send(control: socket.socket, kind: bytes, data: bytes) -> None:
    control.sendall(_HEADER.pack(kind, len(data)) + data)


def _receive(control: socket.socket) -> tuple[bytes, bytes]:
    kind, length = _HEADER.unpack(_exactly(control, _HEADER.size))
    return kind, _exactly(control, length)


def _exactly(control: socket.socket, length: int) -> bytes:
    """So many bytes; none at all, or too few, is the other's end."""
    found = b""
    while len(found) < length:
        if not (more := control.recv(length - len(found))):
            raise EOFError("the other end is gone")
        found += more
    return found
