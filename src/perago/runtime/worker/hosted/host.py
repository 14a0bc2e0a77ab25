"""The host: runs in an engine's process, starts one of Perago's executors there, and forwards the executor's messages.

The executor is the same as on the worker's machine and has its own process group.  Whatever a body does to its process, even
printing from C with the GIL held, the host can still receive messages and kill the executor.  The executor stays alive for
later jobs, with its clients open, and exits when its host does.

    the worker is gone, or the engine     the executor sees its pipe close, and kills itself and everything it has started
    ends the host
    the connection breaks                 the host tries to reconnect for a while, then kills the executor.  If the attempt
                                          has ended, the executor is not killed: the job returns the result too
    the executor dies                     the host reports how, and starts another one for the next job
"""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path

from perago.protocol.names import rerun_id
from perago.protocol.outcome import describe
from perago.runtime.root.state_dir import own_folder
from perago.runtime.root.workdirs import remove_tree
from perago.runtime.worker.executor_protocol import Answer, Cleaned, Ended, Ready, Run, StartFailed
from perago.runtime.worker.hosted.engine import JobContext
from perago.runtime.worker.hosted.protocol import Connect, HostPlan, Report
from perago.runtime.worker.hosted.transport import ConnectionLost, WorkerConnection, call
from perago.runtime.worker.local_executor import (
    ExecutorProcess,
    death_of,
    describe_exit,
    exit_code_of,
    kill_group,
    start_process,
)

_CHUNK = 65536
_EXIT_SECONDS = 10.0
RERUNS = 100
"""Number of execution ids reserved for the engine's own reruns each time the worker hands out an execution."""


@dataclass(slots=True, eq=False)
class HostedExecutor:
    """A host's executor process. Reading `output` does not block; `workdirs` belongs to this executor only."""

    process: ExecutorProcess
    pipe: Connection
    output: int
    death: int
    workdirs: Path
    ready: bool = False
    done: int = 0

    @property
    def dead(self) -> bool:
        """True if the process has ended."""
        return bool(wait([self.death], 0))

    def read_output(self) -> bytes:
        """Return the next chunk of printed output without blocking. The chunk is empty if there is no output."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return b""

    def end(self) -> str:
        """Kill the process group, remove its workdirs, and return how the executor ended."""
        kill_group(self.process.pid or 0)
        self.process.join()
        self.pipe.close()
        os.close(self.output)
        if self.death != self.process.sentinel:
            os.close(self.death)
        with contextlib.suppress(OSError):
            remove_tree(self.workdirs)
        return describe_exit(exit_code_of(self.process))


class HostSession:
    """Forwards an executor's messages until its attempt is over or, without an attempt, until the executor is ready."""

    def __init__(self, executor: HostedExecutor, connection: WorkerConnection, run: Run | None) -> None:
        self._executor = executor
        self._connection = connection
        self._run = run
        self._ended: Ended | None = None
        self._start_error = ""
        self._over = False

    def until_over(self) -> str:
        """Wait until the work is done. Returns how the executor ended, or an empty string if it is still alive."""
        if self._executor.ready:
            self._begin()
        while not self._over:
            try:
                if (how := self._handle_next()) is not None:
                    return how
            except ConnectionLost as error:
                # From now on, messages are only buffered: the job returns them.
                self._connection.close()
                if self._ended is None:
                    self._kill()
                    return f"a lost connection to its worker: {error}"
        self._pass_output()
        return ""

    def is_last(self, most: int) -> bool:
        """Return whether the executor should run no more attempts."""
        return self._ended is not None and self._ended.is_last(self._executor.done, most)

    def _handle_next(self) -> str | None:
        """Wait for the next event and handle it. Returns how the executor ended, or None if it is alive."""
        executor, connection = self._executor, self._connection.connection
        sources: list[Connection | int] = [executor.pipe, executor.output, executor.death]
        wait(sources if connection is None else [*sources, connection.fileno()])
        self._pass_output()
        if connection is not None and connection.poll() and self._connection.received_kill():
            return self._kill()
        if executor.dead:
            return self._handle_death()
        if executor.pipe.poll() and not self._pass_answer():
            wait([executor.death], _EXIT_SECONDS)
            return self._kill()
        return None

    def _kill(self) -> str:
        """Kill the executor, then forward the messages that it had already sent, because they show how far it got."""
        kill_group(self._executor.process.pid or 0)
        wait([self._executor.death])
        return self._handle_death()

    def _handle_death(self) -> str:
        # The executor's last messages may arrive together with its death.
        while self._executor.pipe.poll() and self._pass_answer():
            pass
        self._pass_output()
        how = self._executor.end()
        return f"a start that failed: {self._start_error}" if self._start_error else how

    def _pass_answer(self) -> bool:
        """Forward the executor's next message to the worker. Returns whether there may be more."""
        try:
            answer: Answer = self._executor.pipe.recv()
        except Exception:
            # The executor is gone, or a body has written into the pipe, so that later messages cannot be parsed.
            return False
        match answer:
            case Ready():
                self._executor.ready = True
                self._begin()
                return True
            case StartFailed(reason):
                self._start_error = reason
            case Ended():
                self._ended = answer
                self._executor.done += 1
            case Cleaned():
                self._over = True
        self._connection.send(answer)
        return True

    def _pass_output(self) -> None:
        while data := self._executor.read_output():
            self._connection.send_output(data)

    def _begin(self) -> None:
        if self._run is None:
            self._over = True
            return
        # If the executor is gone, its death is noticed elsewhere.
        with contextlib.suppress(OSError):
            self._executor.pipe.send(self._run)


_executors: dict[tuple[int, str], HostedExecutor] = {}
"""Live executors, keyed by process id (because a fork inherits its parent's entries) and worker session."""


def host(plan: HostPlan, job: str, run: Run | None, context: JobContext) -> Report:
    """Run an attempt in an executor. Without `run`, only wait until the executor is ready.

    Errors are returned in the report, never raised.
    """
    with closing(
        WorkerConnection(partial(call, plan.address, plan.key), Connect(job, context.again))
    ) as connection:
        try:
            connection.open()
        except ConnectionLost as error:
            return Report((), f"no connection to its worker at {plan.address[0]}:{plan.address[1]}: {error}")
        key = (os.getpid(), plan.session)
        try:
            executor = _alive_or_none(_executors.pop(key, None)) or start_executor(plan, context)
        except Exception as error:
            return Report(connection.kept, f"a start that failed: {describe(error)}")
        session = HostSession(executor, connection, with_rerun_id(run, context) if run is not None else None)
        how = session.until_over()
        if not how and session.is_last(plan.spec.settings.executor_max_tasks):
            executor.end()
        elif not how:
            _executors[key] = executor
        return Report(connection.kept, how)


def with_rerun_id(run: Run, context: JobContext) -> Run:
    """Return the run with an execution id that no other run of this execution has had."""
    number = (run.handouts - 1) * RERUNS + context.again
    return replace(run, execution_id=rerun_id(run.execution_id, number))


def start_executor(plan: HostPlan, context: JobContext) -> HostedExecutor:
    """Start an executor as a child process."""
    if str(plan.folder) not in sys.path:
        sys.path.insert(0, str(plan.folder))
    workdirs = own_folder(context.scratch / "perago-work", "host")
    spec = replace(plan.spec, servers=plan.spec.servers.with_workspace_root(workdirs))
    ours, theirs = Pipe()
    output, write = os.pipe()
    try:
        process = start_process(spec, os.getpid(), theirs, write)
    except BaseException:
        ours.close()
        os.close(output)
        raise
    finally:
        theirs.close()
        os.close(write)
    os.set_blocking(output, False)
    return HostedExecutor(process, ours, output, death_of(process), workdirs)


def _alive_or_none(executor: HostedExecutor | None) -> HostedExecutor | None:
    """Return the previous job's executor, or None if it has died since."""
    if executor is not None and executor.dead:
        executor.end()
        return None
    return executor
