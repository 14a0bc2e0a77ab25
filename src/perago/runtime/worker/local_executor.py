"""An executor that is a process on this machine, reached over a pipe.

It is forked from the fork server if there is one, and launched as a new Python process otherwise.  A listener thread
forwards its messages and finally reports its exit, so every message is handled before the death of the executor that
sent it.
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
from multiprocessing.context import SpawnProcess

from perago.runtime.process.process_setup import end_descendants
from perago.runtime.worker.executor import ExecutorSpec, new_executor
from perago.runtime.worker.executor_protocol import ExecutorExit, Request
from perago.runtime.worker.fork_server import Forked, ForkServerGone, current_fork_server
from perago.runtime.worker.inbox import ExecutorAnswered, ExecutorGone, Inbox
from perago.runtime.worker.output_capture import OutputListener, OutputReader

log = logging.getLogger("perago.slot")

_spawn = multiprocessing.get_context("spawn")

ExecutorProcess = SpawnProcess | Forked
"""A started executor process.  Until `join` is called, its pid cannot be reused and its exit code is not set."""


@dataclass(frozen=True, slots=True)
class Processes:
    """Starts executors as processes on this machine."""

    spec: ExecutorSpec

    def start(self, number: int, inbox: Inbox, output: OutputListener) -> ProcessLink:
        """Start an executor.

        If the machine runs out of file descriptors, memory, processes or threads, the error is raised and nothing is left
        behind.
        """
        with ExitStack() as undo, ExitStack() as handed_over:
            ours, theirs = _spawn.Pipe()
            undo.callback(ours.close)
            handed_over.callback(theirs.close)
            reader = OutputReader(output, name=str(number))
            handed_over.callback(reader.close_write_end)
            # Created here, because an error on the listener's thread would not reach the caller.
            selector = undo.enter_context(selectors.DefaultSelector())
            process = begin_process(self.spec, number, theirs, reader.write_fd)
            undo.callback(_kill_and_reap, process)
            # Opened here, before anything can reap the process.
            death = death_of(process)
            if death != process.sentinel:
                undo.callback(os.close, death)
            selector.register(ours, selectors.EVENT_READ)
            selector.register(death, selectors.EVENT_READ)
            link = ProcessLink(number, process, ours, inbox)
            threading.Thread(
                target=link.listen, args=(death, selector), name=f"perago-slot-{number}", daemon=True
            ).start()
            undo.pop_all()
        return link


@dataclass(frozen=True, slots=True)
class ProcessLink:
    """The link to one executor process."""

    number: int
    process: ExecutorProcess
    pipe: Connection
    inbox: Inbox

    def send(self, request: Request) -> None:
        """Send a request.  Does nothing if the executor is dead."""
        # A broken pipe means that the executor is dead; the listener reports that next.
        with contextlib.suppress(OSError):
            self.pipe.send(request)

    def kill(self) -> None:
        """Kill the executor and everything it has started."""
        kill_group(self.process.pid or 0)

    def close(self) -> None:
        """Close the supervisor's end of the pipe."""
        self.pipe.close()

    def listen(self, death: int, selector: selectors.BaseSelector) -> None:
        """Forward the executor's messages, then report its exit.  Runs on a separate thread."""
        # One selector for all messages; `wait` would create one for each.
        with selector:
            while all(key.fileobj is self.pipe for key, _ in selector.select()) and self.pass_on():
                pass
        wait([death])
        # The executor's last messages may arrive together with its death.
        while self.pipe.poll() and self.pass_on():
            pass
        self.kill()
        self.process.join()
        if death != self.process.sentinel:
            os.close(death)
        self.inbox.post(ExecutorGone(self.number, ExecutorExit(describe_exit(exit_code_of(self.process)))))

    def pass_on(self) -> bool:
        """Forward the executor's next message.  Returns whether there may be more."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            return False
        except Exception:
            # Something else wrote into the pipe, so message boundaries are lost.
            log.exception("cannot read the messages of executor %d, killing it", self.number)
            self.kill()
            return False
        self.inbox.post(ExecutorAnswered(self.number, answer))
        return True


def begin_process(spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> ExecutorProcess:
    """Start an executor: fork it from the fork server if possible, otherwise launch a new Python process.

    The caller closes `pipe` and `output_fd`.
    """
    if (fork_server := current_fork_server()) is not None:
        try:
            return fork_server.begin(spec, number, pipe, output_fd)
        except ForkServerGone as error:
            log.warning("executor %d is started without the fork server: %s", number, error)
    return start_process(spec, number, pipe, output_fd)


def start_process(spec: ExecutorSpec, number: int, pipe: Connection, output_fd: int) -> ExecutorProcess:
    """Start an executor as a new Python process that uses `pipe` and prints to `output_fd`.  The caller closes both."""
    output = Connection(os.dup(output_fd), readable=False)
    try:
        process = new_executor(spec, number, pipe, output)
        process.start()
    finally:
        output.close()
    return process


def _kill_and_reap(process: ExecutorProcess) -> None:
    """Kill and reap a process that was started but has no listener."""
    kill_group(process.pid or 0)
    process.join()


def death_of(process: ExecutorProcess) -> int:
    """Return a descriptor that becomes ready for reading when the process is dead.

    This is a pidfd if the system supports pidfds, because a child forked by the body would keep the sentinel open.
    """
    return os.pidfd_open(process.pid or 0) if hasattr(os, "pidfd_open") else process.sentinel


def exit_code_of(process: ExecutorProcess) -> int:
    """Return the exit code of a process that has been joined."""
    while process.exitcode is None:
        # Another thread, while starting a process, has reaped this one and is about to set the exit code.
        time.sleep(0.001)
    return process.exitcode


def kill_group(pid: int) -> None:
    """Kill an executor and everything it started.  It has not been reaped yet, so its pid cannot have been reused."""
    if pid <= 0:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # A stopped process cannot start anything, but still adopts orphans.
        os.kill(pid, signal.SIGSTOP)
        end_descendants(pid)
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_exit(exit_code: int) -> str:
    """Return a human-readable exit code: the signal's name, or the number."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"signal {-exit_code}"
