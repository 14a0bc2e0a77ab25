"""The executor process: runs one attempt after another and reports to the supervisor over a pipe.

- It has its own process group and dies with its supervisor: when the pipe closes, it kills the group and every other
  process that bodies have started, even in other sessions.  To find them all, it adopts orphaned descendants.
- It ignores SIGINT and SIGTERM: terminals and service managers send them to every process, but the supervisor decides
  whether attempts finish.
- The result of an execution is reported first.  Cleanup follows on a separate thread, possibly while the
  next execution is already running.
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
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

from perago.backend import Backend
from perago.declare.code_origin import installed_packages, remember_code
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.protocol.attempt import Attempt
from perago.protocol.ledger import NOTHING_FORCED, Recompute
from perago.protocol.outcome import describe
from perago.runtime.attempt.context import AttemptContext, Observer, ask_until_answered
from perago.runtime.attempt.run_steps import new_transaction
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.call_recorder import CallRecorder
from perago.runtime.observe.logs import attempt_logs, logging_by, logging_to
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.process.process_leaks import ProcessLeaks, busy_threads
from perago.runtime.process.process_setup import adopt_orphans, end_descendants, start_process_group
from perago.runtime.process.stdio_state import flush_output
from perago.runtime.worker.executor_protocol import (
    Answer,
    BodyProgress,
    Cleaned,
    Ended,
    Ready,
    Run,
    StartFailed,
    StepStarted,
    StepTraced,
    Stop,
)
from perago.runtime.worker.output_capture import Printer
from perago.runtime.worker.task_logs import ForwardingHandler
from perago.settings import Settings

log = logging.getLogger("perago.executor")

MOST_WAITING_CLEANUPS = 4
"""Maximum number of ended executions waiting for cleanup.  If there are more, the next attempt has to wait."""

OVERLAP_THREADS = 4
"""Number of threads for the concurrent parts of an attempt: revoking, claiming, determining the fence level."""

EXIT_SECONDS = 10.0
"""Time limit in seconds for an orderly exit of the Python process."""

_spawn = multiprocessing.get_context("spawn")


def no_observer(_step: str) -> None:
    """Do nothing when a step begins.  This is the default observer."""


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """The configuration of an executor process, which is pickled and passed to the new process.

    `tasks` names the tasks to run; the modules in `targets` may declare others too.  With `passes_logs`, the executor
    forwards its log to the supervisor.
    """

    servers: Backend
    targets: tuple[str, ...]
    tasks: tuple[str, ...]
    max_result_bytes: int | None = None
    observe: Observer = no_observer
    passes_logs: bool = False
    recompute: Recompute = NOTHING_FORCED
    """The work of a run that is done again although nothing has changed."""

    @property
    def settings(self) -> Settings:
        """The settings for the worker and its servers."""
        return self.servers.settings


def new_executor(spec: ExecutorSpec, number: int, pipe: Connection, output: Connection) -> SpawnProcess:
    """Return an executor process that has not been started yet."""
    return _spawn.Process(
        target=run_executor, args=(spec, number, pipe, output), name=f"perago-executor-{number}"
    )


def forked_executor_main(request: bytes, pipe: Connection, output: Connection) -> NoReturn:
    """Run a forked executor process to its end.  Tasks cannot tell it from a spawned one."""
    code = 1
    try:
        environment, pickled_spec = pickle.loads(request)
        environment.apply()
        # Not before `apply`: unpickling may import modules from folders that the environment adds.
        spec, number = pickle.loads(pickled_spec)
        # Enter the process the way multiprocessing does, so that it knows its parent and how to start other processes.
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
    """Run an executor process to its end."""
    start_process_group("perago-executor")
    adopt_orphans()
    printer = Printer(os.dup(output.fileno()))
    output.close()
    supervisor = _SupervisorPipe(pipe)
    with _logging(spec, number, supervisor, printer):
        code = _work(spec, supervisor, printer)
        busy = busy_threads(threading.enumerate())
        if busy:
            log.info("exiting while threads still run: %s", ", ".join(thread.name for thread in busy))
    _end_process(code, immediately=bool(busy))


def _logging(
    spec: ExecutorSpec, number: int, supervisor: _SupervisorPipe, printer: Printer
) -> AbstractContextManager[object]:
    if spec.passes_logs:
        return logging_by([ForwardingHandler(supervisor.send, beside=printer.write)], bodies=printer.write)
    return logging_to(spec.settings, name=f"executor-{number}", stream=printer.log, bodies=printer.write)


def _work(spec: ExecutorSpec, supervisor: _SupervisorPipe, printer: Printer) -> int:
    """Load the tasks, connect to the servers and run attempts until `Stop` arrives.  Returns the exit code."""
    with ExitStack() as opened:
        try:
            tasks = {task.name: task for task in load_tasks(spec.targets) if task.name in spec.tasks}
            remember_code(tasks.values())
            lake, orchestrator = opened.enter_context(spec.servers.opened())
            open_place = spec.servers.open_places(list(tasks.values()))
        except Exception as error:
            supervisor.send(StartFailed(describe(error)))
            return 1
        supervisor.send(Ready())
        context = AttemptContext(
            lake=lake,
            orchestrator=orchestrator,
            workspace_root=spec.settings.workspace_root,
            fence=spec.settings.fence,
            overlap=opened.enter_context(ThreadPoolExecutor(OVERLAP_THREADS, "perago-overlap")).submit,
            max_result_bytes=spec.max_result_bytes,
            open_place=open_place,
            retry_query=ask_until_answered,
            wrong_input=spec.settings.wrong_input,
            recompute=spec.recompute,
            image=spec.settings.image,
            mask=Masker(secrets_of(spec.settings)),
        )
        loop = _AttemptLoop(tasks, context, spec.observe, supervisor, printer, traces=spec.settings.traces)
        loop.run()
    return 0


def _end_process(code: int, *, immediately: bool) -> NoReturn:
    """Exit in an orderly way, but wait at most `EXIT_SECONDS` for whatever user code left running.

    At exit, Python waits for threads and multiprocessing's child processes, and runs registered exit functions.  With
    `immediately`, all of that is skipped.
    """
    flush_output()
    if immediately:
        os._exit(code)
    # This is the only timer that still works during interpreter shutdown.  Its default action ends the process.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, EXIT_SECONDS)
    sys.exit(code)


class _SupervisorPipe:
    """The executor's end of the pipe.  When the supervisor's end closes, the executor kills itself."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._requests: queue.SimpleQueue[Run | Stop] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="perago-pipe", daemon=True).start()

    def next(self) -> Run | Stop:
        """Wait for the supervisor's next request."""
        return self._requests.get()

    def send(self, answer: Answer) -> None:
        """Send a message to the supervisor.  Thread-safe."""
        # Pickle before taking the lock: objects freed while pickling may log, which calls this method again.
        data = ForkingPickler.dumps(answer)
        try:
            with self._sending:
                self._pipe.send_bytes(data)
        except OSError:
            _kill_self()

    def _listen(self) -> None:
        # Runs on a thread, so that the supervisor's death is noticed even while a body computes.
        while True:
            try:
                self._requests.put(self._pipe.recv())
            except (EOFError, OSError):
                _kill_self()


class _AttemptLoop:
    """Runs the attempts that the supervisor requests, one at a time."""

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        context: AttemptContext,
        observe: Observer,
        supervisor: _SupervisorPipe,
        printer: Printer,
        *,
        traces: bool,
    ) -> None:
        self._traces = traces
        self._tasks = tasks
        self._context = context
        self._observe = observe
        self._supervisor = supervisor
        self._printer = printer
        self._has_listed = False

    def run(self) -> None:
        """Run the requested attempts until `Stop` arrives, then finish cleaning up."""
        with _Cleaner() as cleaner:
            while isinstance(request := self._supervisor.next(), Run):
                self._run_attempt(request, cleaner)

    def _run_attempt(self, request: Run, cleaner: _Cleaner) -> None:
        attempt, execution_id = request.assignment.attempt, request.execution_id
        leaks = ProcessLeaks()
        recorder = (
            CallRecorder(lambda times: self._supervisor.send(StepTraced(execution_id, times)))
            if self._traces
            else None
        )

        def hand_over(result: ExecutionResult) -> None:
            if not self._has_listed:
                # In the log of the first attempt: the others have the digest of the list.
                self._has_listed = True
                result = replace(result, seen=replace(result.seen, packages=installed_packages()))
            if recorder is not None:
                recorder.close()
            # Report the result first, whatever the body has done to this process.
            self._supervisor.send(Ended(execution_id, result, leaks.unusable_reason()))
            self._printer.end(execution_id)

        def begin(step: str) -> None:
            if recorder is not None:
                recorder.begin(step)
            self._supervisor.send(StepStarted(execution_id, step))
            self._observe(step)

        def note(text: str) -> None:
            self._supervisor.send(BodyProgress(execution_id, text))

        def clean_up(cleanup: ExitStack) -> None:
            cleaner.put(_Cleanup(attempt, execution_id, cleanup, self._supervisor))

        context = replace(
            self._context,
            observe=begin,
            clean_up=clean_up,
            note=note,
            preserving_process_state=leaks.watched,
        )
        if recorder is not None:
            context = replace(
                context,
                lake=recorder.watch(context.lake, "lake"),
                orchestrator=recorder.watch(context.orchestrator, "orchestrator"),
            )
        self._printer.begin(execution_id)
        with attempt_logs(attempt, execution_id, everywhere=True):
            task = self._tasks[attempt.task_name]
            new_transaction(task, request.assignment, execution_id, context).run(hand_over)


@dataclass(frozen=True, slots=True)
class _Cleanup:
    attempt: Attempt
    execution_id: str
    stack: ExitStack
    supervisor: _SupervisorPipe

    def __call__(self) -> None:
        with attempt_logs(self.attempt, self.execution_id):
            try:
                self.stack.close()
            except Exception:
                log.exception("failed to clean up after the execution")
        self.supervisor.send(Cleaned(self.execution_id))


class _Cleaner:
    """Runs cleanups on a separate thread.  `put` blocks while too many of them are waiting."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[_Cleanup | None] = queue.Queue(MOST_WAITING_CLEANUPS)
        self._thread = threading.Thread(target=self._run, name="perago-cleanup", daemon=True)

    def __enter__(self) -> _Cleaner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def put(self, cleanup: _Cleanup) -> None:
        """Queue a cleanup.  Cleanups run in the order in which they were queued."""
        self._waiting.put(cleanup)

    def _run(self) -> None:
        while (cleanup := self._waiting.get()) is not None:
            cleanup()


def _kill_self() -> None:
    """Kill this process and everything that bodies have started."""
    end_descendants(os.getpid())
    os.killpg(0, signal.SIGKILL)
