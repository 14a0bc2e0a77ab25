"""An executor that is a process of this machine, reached over a pipe.

It is forked from a template where there is one, and a new Python else.
A listener thread passes on what it says and, as the last thing, how it left; so an answer is always seen before the death of
who gave it.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import selectors
import signal
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Protocol

from perago.runtime.process.process_setup import end_descendants
from perago.runtime.worker.executor import ExecutorSpec, new_executor
from perago.runtime.worker.executor_protocol import ExecutorExit, LinkCallbacks, Request
from perago.runtime.worker.fork_server import ForkServerGone, current_fork_server
from perago.runtime.worker.output_capture import OutputReader

log = logging.getLogger("perago.slot")

_spawn = multiprocessing.get_context("spawn")


class ExecutorProcess(Protocol):
    """A process that was started, as multiprocessing has it."""

    @property
    def pid(self) -> int | None:
        """Its number; nobody else's until it has been joined."""

    @property
    def sentinel(self) -> int:
        """Something to wait on that is ready when it is dead."""

    @property
    def exitcode(self) -> int | None:
        """How it ended, once it has been joined."""

    def join(self) -> None:
        """Wait for its end."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Starts executors as processes, as a spec says."""

    spec: ExecutorSpec

    def start(self, number: int, callbacks: LinkCallbacks) -> ProcessLink:
        """Start one.

        A machine that has no room for it (descriptors, memory, processes, threads) raises whatever it raises, and
        nothing is left of the try.
        """
        with ExitStack() as undo, ExitStack() as handed_over:
            ours, theirs = _spawn.Pipe()
            undo.callback(ours.close)
            handed_over.callback(theirs.close)
            output = OutputReader(
                callbacks.printed, callbacks.mask, name=str(number), ended=callbacks.output_ended
            )
            handed_over.callback(output.handed_over)
            # Here and not on the listener's thread, where nobody would hear that there is none to be had.
            event_publisher = undo.enter_context(selectors.DefaultSelector())
            process = begin_process(self.spec, number, theirs, output.write_fd)
            undo.callback(_end, process)
            # Opened here, where nothing can have reaped the process yet.
            death = death_of(process)
            if death != process.sentinel:
                undo.callback(os.close, death)
            event_publisher.register(ours, selectors.EVENT_READ)
            event_publisher.register(death, selectors.EVENT_READ)
            link = ProcessLink(number, process, ours, callbacks)
            threading.Thread(
                target=link.listen, args=(death, event_publisher), name=f"perago-slot-{number}", daemon=True
            ).start()
            undo.pop_all()
        return link


@dataclass(frozen=True, slots=True)
class ProcessLink:
    """One executor process."""

    number: int
    process: ExecutorProcess
    pipe: Connection
    callbacks: LinkCallbacks

    def send(self, request: Request) -> None:
        """Ask something of it."""
        # A broken pipe means that the executor is dead: its listener says so next.
        with contextlib.suppress(OSError):
            self.pipe.send(request)

    def kill(self) -> None:
        """End it and everything it has started, now."""
        kill_group(self.process.pid or 0)

    def close(self) -> None:
        """Let go of our end of the pipe."""
        self.pipe.close()

    def listen(self, death: int, event_publisher: selectors.BaseSelector) -> None:
        """On a thread of its own: pass on what it says, until it is gone."""
        # One selector for all answers: `wait` would make one for each.
        with event_publisher:
            while all(key.fileobj is self.pipe for key, _ in event_publisher.select()) and self.pass_on():
                pass
        wait([death])
        # What it said last may have come together with its death.
        while self.pipe.poll() and self.pass_on():
            pass
        self.kill()
        self.process.join()
        if death != self.process.sentinel:
            os.close(death)
        self.callbacks.gone(ExecutorExit(describe_exit(exit_code_of(self.process))))

    def pass_on(self) -> bool:
        """Pass on the next answer; tells whether there may be more."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            return False
        except Exception:
            # Something else has written into the pipe: what it says from now on cannot be told apart.
            log.exception("what executor %d says cannot be read: it is killed", self.number)
            self.kill()
            return False
        self.callbacks.answered(answer)
        return True


def begin_process(spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> ExecutorProcess:
    """Begin an executor process in the quickest way that there is; the caller closes `pipe` and `output_fd`."""
    if (template := current_fork_server()) is not None:
        try:
            return template.begin(spec, number, pipe, output_fd)
        except ForkServerGone as error:
            log.warning("executor %d is started without a template: %s", number, error)
    return start_process(spec, number, pipe, output_fd)


def start_process(spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> ExecutorProcess:
    """Start an executor as a new Python that speaks over `pipe` and prints to `output_fd`; the caller closes both."""
    output = Connection(os.dup(output_fd), readable=False)
    try:
        process = new_executor(spec, number, pipe, output)
        process.start()
    finally:
        output.close()
    return process


def _end(process: ExecutorProcess) -> None:
    """Undo the start of a process that nobody listens to."""
    kill_group(process.pid or 0)
    process.join()


def death_of(process: ExecutorProcess) -> int:
    """Something to wait on that is ready when the process is dead.

    Not the process's own sentinel where there is better: a child that the body forked holds that open.
    """
    return os.pidfd_open(process.pid or 0) if hasattr(os, "pidfd_open") else process.sentinel


def exit_code_of(process: ExecutorProcess) -> int:
    """How a process that has been joined ended."""
    while process.exitcode is None:
        # Another thread that starts a process has reaped this one and is about to say so.
        time.sleep(0.001)
    return process.exitcode


def kill_group(pid: int) -> None:
    """Kill an executor and what it started; it is not reaped yet, so the number is still its own."""
    if pid <= 0:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # Stopped, it starts nothing more, and still adopts what loses its parent.
        os.kill(pid, signal.SIGSTOP)
        end_descendants(pid)
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_exit(exit_code: int) -> str:
    """An exit code for people: the signal's name, or the code."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
