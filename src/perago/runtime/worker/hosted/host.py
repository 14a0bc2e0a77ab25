"""One job of a host: from handing an attempt to its executor until that has cleaned up, or is gone.

In a process of an engine's executor: hosts an executor process of ours, and passes on what it says.

The executor is the one that a worker starts on its own machine, in a process group of its own: what a body does to its
process, printing from C with the GIL held included, never keeps the host from listening and from ending it.  It stays for
the jobs that follow, with its clients open, and ends when its host does.

    the worker is gone, or the engine     the executor sees the end of its pipe, and goes with all that it has started
    ends the host
    the line is cut                       the host calls again for a while, then ends the executor, unless its attempt is
                                          settled: the job brings the ending too
    the executor dies                     the host says how, and starts another one for the next job
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
_LAST_WORDS_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class HostedExecutor:
    """The executor process of a host; `output` does not block, and `workdirs` is a folder of its own."""

    process: ExecutorProcess
    pipe: Connection
    output: int
    death: int
    workdirs: Path
    ready: bool = False
    done: int = 0

    @property
    def dead(self) -> bool:
        """Whether it has ended."""
        return bool(wait([self.death], 0))

    def printed(self) -> bytes:
        """What it has printed, without waiting; empty where there is nothing."""
        try:
            return os.read(self.output, _CHUNK)
        except BlockingIOError:
            return b""

    def end(self) -> str:
        """End it, if it lives, with all that it has started and left in its folder; returns how it ended."""
        kill_group(self.process.pid or 0)
        self.process.join()
        self.pipe.close()
        os.close(self.output)
        if self.death != self.process.sentinel:
            os.close(self.death)
        with contextlib.suppress(OSError):
            remove_tree(self.workdirs)
        return describe_exit(exit_code_of(self.process))


class Hosting:
    """Passes on what an executor says while it runs an attempt; without one, until it is ready."""

    def __init__(self, executor: HostedExecutor, line: WorkerConnection, run: Run | None) -> None:
        self._executor = executor
        self._line = line
        self._run = run
        self._ended: Ended | None = None
        self._broken = ""
        self._over = False

    def until_over(self) -> str:
        """Returns how the executor has ended; empty where it has done its work, and lives."""
        if self._executor.ready:
            self._begin()
        while not self._over:
            try:
                if (how := self._look()) is not None:
                    return how
            except ConnectionLost as error:
                # What is said from now on is only kept: the job itself brings it.
                self._line.close()
                if self._ended is None:
                    self._kill()
                    return f"its line to the worker cut: {error}"
        self._pass_output()
        return ""

    def is_last(self, most: int) -> bool:
        """Whether the executor should run nothing more."""
        return self._ended is not None and self._ended.is_last(self._executor.done, most)

    def _look(self) -> str | None:
        """Wait for the next thing to happen; returns how the executor ended, if that is it."""
        executor, line = self._executor, self._line.connection
        wait([executor.pipe, executor.output, executor.death, *([line.fileno()] if line is not None else [])])
        self._pass_output()
        if line is not None and line.poll() and self._line.is_to_die():
            return self._kill()
        if executor.dead:
            return self._died()
        if executor.pipe.poll() and not self._pass_answer():
            wait([executor.death], _LAST_WORDS_SECONDS)
            return self._kill()
        return None

    def _kill(self) -> str:
        """End the executor; what it had said by then counts, since it tells how far it got."""
        kill_group(self._executor.process.pid or 0)
        wait([self._executor.death])
        return self._died()

    def _died(self) -> str:
        # What it said last may have come together with its death.
        while self._executor.pipe.poll() and self._pass_answer():
            pass
        self._pass_output()
        how = self._executor.end()
        return f"a start that failed: {self._broken}" if self._broken else how

    def _pass_answer(self) -> bool:
        """Pass on an answer; tells whether there may be more."""
        try:
            answer: Answer = self._executor.pipe.recv()
        except Exception:
            # It is gone, or something else has written into the pipe, and nothing after it can be told apart.
            return False
        match answer:
            case Ready():
                self._executor.ready = True
                self._begin()
                return True
            case StartFailed(reason):
                self._broken = reason
            case Ended():
                self._ended = answer
                self._executor.done += 1
            case Cleaned():
                self._over = True
        self._line.say(answer)
        return True

    def _pass_output(self) -> None:
        while data := self._executor.printed():
            self._line.print(data)

    def _begin(self) -> None:
        if self._run is None:
            self._over = True
            return
        # An executor that is gone says so by its death.
        with contextlib.suppress(OSError):
            self._executor.pipe.send(self._run)


RERUNS = 100
"""So many numbers are an engine's own, between one handing out of an execution and the next."""

_executors: dict[tuple[int, str], HostedExecutor] = {}
"""By process, since what a fork has inherited is another's, and by worker."""


def host(plan: HostPlan, job: str, run: Run | None, spot: JobContext) -> Report:
    """Have an executor run an attempt, or only become ready; what goes wrong is reported, never raised."""
    with closing(WorkerConnection(partial(call, plan.address, plan.key), Connect(job, spot.again))) as line:
        try:
            line.open()
        except ConnectionLost as error:
            return Report((), f"no line to its worker at {plan.address[0]}:{plan.address[1]}: {error}")
        key = (os.getpid(), plan.session)
        try:
            executor = _alive(_executors.pop(key, None)) or start_executor(plan, spot)
        except Exception as error:
            return Report(line.kept, f"a start that failed: {describe(error)}")
        hosting = Hosting(executor, line, numbered(run, spot) if run is not None else None)
        how = hosting.until_over()
        if not how and hosting.is_last(plan.spec.settings.executor_max_tasks):
            executor.end()
        elif not how:
            _executors[key] = executor
        return Report(line.kept, how)


def numbered(run: Run, spot: JobContext) -> Run:
    """The same, under an id that no other run of this execution has had."""
    number = (run.given - 1) * RERUNS + spot.again
    return replace(run, execution_id=rerun_id(run.execution_id, number))


def start_executor(plan: HostPlan, spot: JobContext) -> HostedExecutor:
    """Start an executor process below this one."""
    if str(plan.folder) not in sys.path:
        sys.path.insert(0, str(plan.folder))
    workdirs = own_folder(spot.scratch / "perago-work", "host")
    spec = replace(plan.spec, servers=plan.spec.servers.working_in(workdirs))
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


def _alive(executor: HostedExecutor | None) -> HostedExecutor | None:
    """The executor of the job before, unless it has died since."""
    if executor is not None and executor.dead:
        executor.end()
        return None
    return executor
