"""An executor process: runs one attempt after the other, and says what happens over its pipe.

- It lives in a process group of its own and dies with its supervisor: when the pipe ends, the whole group goes, and
  everything else that bodies have started, in whatever session.  For that it adopts what has lost its parent.
- It takes no notice of SIGINT and SIGTERM: a terminal and a service manager send them to every process, but whether
  attempts finish is the supervisor's decision.
- A settled execution is handed over first and cleaned up afterwards, on a thread, while the next one may begin.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import describe
from perago.runtime.attempt.context import AttemptContext, Observer, ask_until_answered
from perago.runtime.attempt.transaction import Transaction
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.logs import attempt_logs, logging_by, logging_to
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.process.process_leaks import ProcessLeaks, busy_threads
from perago.runtime.process.process_setup import adopt_orphans, end_descendants, start_process_group
from perago.runtime.process.stdio_state import flush_output
from perago.runtime.servers import Servers
from perago.runtime.servers import opened as opened_ports
from perago.runtime.worker.executor_protocol import (
    Answer,
    BodyProgress,
    Cleaned,
    Ended,
    Ready,
    Run,
    StartFailed,
    StepStarted,
    Stop,
)
from perago.runtime.worker.output_capture import Printer
from perago.runtime.worker.task_logs import PassedOn
from perago.settings import Settings

log = logging.getLogger("perago.executor")

LEFT_TO_CLEAN = 4
"""So many settled executions may wait to be cleaned up before the next attempt has to wait for them."""

OVERLAPPING = 4
"""Threads for what an attempt does alongside its main course: revoking, claiming, looking for the fence."""

LEAVING_SECONDS = 10.0
"""How long Python may take to end in good order."""

Say = Callable[[Answer], None]

_spawn = multiprocessing.get_context("spawn")


def no_observer(_step: str) -> None:
    """The observer of a worker that nobody watches."""


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """How an executor process is made; it travels to the new process, so all of it can be pickled.

    `tasks` are the names of those that it runs; the modules `targets` may declare others.  With `passes_logs` the
    supervisor writes its log.
    """

    servers: Servers
    targets: tuple[str, ...]
    tasks: tuple[str, ...]
    max_result_bytes: int | None = None
    observe: Observer = no_observer
    passes_logs: bool = False

    @property
    def settings(self) -> Settings:
        """The settings of its servers, and of all else."""
        return self.servers.settings


def new_executor(spec: ExecutorSpec, number: int, pipe: Connection, output: Connection) -> SpawnProcess:
    """An executor's process as multiprocessing has it, not begun yet."""
    return _spawn.Process(
        target=run_executor, args=(spec, number, pipe, output), name=f"perago-executor-{number}"
    )


def forked_executor_main(request: bytes, pipe: Connection, output: Connection) -> NoReturn:
    """The whole life of an executor process that was forked: for its tasks it is as one that was spawned."""
    code = 1
    try:
        standing, made = pickle.loads(request)
        standing.take()
        # Only now: what it is made of may come from a module that is found there.
        spec, number = pickle.loads(made)
        # As multiprocessing itself begins a process, once there is one: who its parent is, how it starts others.
        process: Any = new_executor(spec, number, pipe, output)
        process._parent_pid = os.getppid()
        code = process._bootstrap(parent_sentinel=os.pidfd_open(os.getppid()))
        atexit._run_exitfuncs()
        flush_output()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def run_executor(spec: ExecutorSpec, number: int, pipe: Connection, output: Connection) -> None:
    """The whole life of an executor process."""
    start_process_group("perago-executor")
    adopt_orphans()
    printer = Printer(os.dup(output.fileno()))
    output.close()
    line = _Line(pipe)
    with _logging(spec, number, line, printer):
        code = _work(spec, line, printer)
        busy = busy_threads(threading.enumerate())
        if busy:
            log.info("leaving with threads that still run: %s", ", ".join(one.name for one in busy))
    _leave(code, at_once=bool(busy))


def _logging(
    spec: ExecutorSpec, number: int, line: _Line, printer: Printer
) -> AbstractContextManager[object]:
    if spec.passes_logs:
        return logging_by([PassedOn(line.say, beside=printer.write)], bodies=printer.write)
    return logging_to(spec.settings, name=f"executor-{number}", stream=printer.log, bodies=printer.write)


def _work(spec: ExecutorSpec, line: _Line, printer: Printer) -> int:
    """Open everything and run what comes until told to stop; returns the exit code."""
    with ExitStack() as opened:
        try:
            tasks = {task.name: task for task in load_tasks(spec.targets) if task.name in spec.tasks}
            lake, orchestrator = opened.enter_context(opened_ports(spec.servers))
            open_place = spec.servers.open_places(list(tasks.values()))
        except Exception as error:
            line.say(StartFailed(describe(error)))
            return 1
        line.say(Ready())
        around = AttemptContext(
            lake=lake,
            orchestrator=orchestrator,
            workspace_root=spec.settings.workspace_root,
            fence=spec.settings.fence,
            overlap=opened.enter_context(ThreadPoolExecutor(OVERLAPPING, "perago-overlap")).submit,
            max_result_bytes=spec.max_result_bytes,
            open_place=open_place,
            persist=ask_until_answered,
            wrong_input=spec.settings.wrong_input,
            mask=Masker(secrets_of(spec.settings)),
        )
        _AttemptLoop(tasks, around, spec.observe, line.say, printer).work(line)
    return 0


def _leave(code: int, *, at_once: bool) -> NoReturn:
    """End the process: in good order, but never later because of what authors' code has left running.

    Python waits at its end for threads and for the processes of multiprocessing, and runs what was registered for its exit.
    """
    flush_output()
    if at_once:
        os._exit(code)
    # The one clock that still goes while Python is being torn down; its default action ends the process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, LEAVING_SECONDS)
    sys.exit(code)


class _Line:
    """The executor's end of the pipe; when the supervisor's end is gone, so are we."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._requests: queue.SimpleQueue[Run | Stop] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="perago-line", daemon=True).start()

    def next(self) -> Run | Stop:
        """The supervisor's next wish."""
        return self._requests.get()

    def say(self, answer: Answer) -> None:
        """Tell the supervisor, from any thread."""
        # Before the lock is taken: what pickling sets free may log, which comes here again.
        data = ForkingPickler.dumps(answer)
        try:
            with self._sending:
                self._pipe.send_bytes(data)
        except OSError:
            _die()

    def _listen(self) -> None:
        # A thread of its own, so that a body in a long computation still notices its supervisor's death.
        while True:
            try:
                self._requests.put(self._pipe.recv())
            except (EOFError, OSError):
                _die()


class _AttemptLoop:
    """Where attempts are run, one at a time."""

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        around: AttemptContext,
        observe: Observer,
        say: Say,
        printer: Printer,
    ) -> None:
        self._printer = printer
        self._tasks = tasks
        self._around = around
        self._observe = observe
        self._say = say

    def work(self, line: _Line) -> None:
        """Run what comes until told to stop, then finish cleaning up."""
        with _Cleaner() as cleaner:
            while isinstance(request := line.next(), Run):
                self._run(request, cleaner)

    def _run(self, request: Run, cleaner: _Cleaner) -> None:
        attempt, execution_id = request.assignment.attempt, request.execution_id
        leftovers = ProcessLeaks()

        def hand_over(settled: ExecutionResult) -> None:
            # First of all: what is published is told, whatever the body has done to this process.
            self._say(Ended(execution_id, settled, leftovers.spoiled()))
            self._printer.end(execution_id)

        def begin(step: str) -> None:
            self._say(StepStarted(execution_id, step))
            self._observe(step)

        def note(text: str) -> None:
            self._say(BodyProgress(execution_id, text))

        def clean_up(cleanup: ExitStack) -> None:
            cleaner.put(_Cleanup(attempt, execution_id, cleanup, self._say))

        around = replace(
            self._around,
            observe=begin,
            clean_up=clean_up,
            note=note,
            preserving_process_state=leftovers.watched,
        )
        self._printer.begin(execution_id)
        with attempt_logs(attempt, execution_id, everywhere=True):
            Transaction(self._tasks[attempt.task_name], request.assignment, execution_id, around).run(
                hand_over
            )


@dataclass(frozen=True, slots=True)
class _Cleanup:
    attempt: Attempt
    execution_id: str
    stack: ExitStack
    say: Say

    def __call__(self) -> None:
        with attempt_logs(self.attempt, self.execution_id):
            try:
                self.stack.close()
            except Exception:
                log.exception("failed to clean up after the execution")
        self.say(Cleaned(self.execution_id))


class _Cleaner:
    """Cleans up on a thread; whoever brings more than it can take waits."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[_Cleanup | None] = queue.Queue(LEFT_TO_CLEAN)
        self._thread = threading.Thread(target=self._run, name="perago-cleanup", daemon=True)

    def __enter__(self) -> _Cleaner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def put(self, cleanup: _Cleanup) -> None:
        """Clean this up as soon as what came before is clean."""
        self._waiting.put(cleanup)

    def _run(self) -> None:
        while (cleanup := self._waiting.get()) is not None:
            cleanup()


def _die() -> None:
    """Leave at once, with everything that the body has started."""
    end_descendants(os.getpid())
    os.killpg(0, signal.SIGKILL)
