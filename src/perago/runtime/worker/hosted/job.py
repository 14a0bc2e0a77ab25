"""One attempt as a job of an engine, from the worker's side: its host's messages, and how the job ended.

A job's host connects once the engine has found room for it, and reconnects after a broken connection.  If the engine reruns
the job by itself, another host connects: then the first is rejected, and its last actions are unknown.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perago.protocol.outcome import describe
from perago.runtime.worker.executor_protocol import (
    Answer,
    Cleaned,
    Ended,
    ExecutorExit,
    LinkCallbacks,
    Logged,
    Rerun,
    Run,
)
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.engine import JobLost, Jobs
from perago.runtime.worker.hosted.host import host
from perago.runtime.worker.hosted.protocol import (
    KEPT,
    Accepted,
    Connect,
    HostPlan,
    Kill,
    Output,
    Rejected,
    Report,
)
from perago.runtime.worker.hosted.transport import HostListener
from perago.runtime.worker.output_capture import LineSplitter

log = logging.getLogger("perago.slot")

KILL_SECONDS = 5.0
"""Time for a host to kill its executor before its job is cancelled."""
READ_SECONDS = 5.0
"""Time to read the rest of a connection once its job is over."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The engine for jobs, the listener that their hosts connect to, and the plan that they carry."""

    jobs: Jobs
    listener: HostListener
    plan: HostPlan


class HostedJob:
    """Runs one attempt. Calls `over` once, with the executor's exit if it ended."""

    def __init__(
        self,
        hosts: Hosts,
        run: Run,
        callbacks: LinkCallbacks,
        over: Callable[[HostedJob, ExecutorExit | None], None],
    ) -> None:
        self.execution_id = run.execution_id
        self.ended = self.cleaned = False
        self._id = f"{run.execution_id}-{run.given}"
        self._hosts = hosts
        self._run = run
        self._callbacks = callbacks
        self._over = over
        self._splitter = LineSplitter(
            self._pass_output, callbacks.mask, ended=lambda _: callbacks.output_ended(self.execution_id)
        )
        self._lock = threading.Lock()
        self._connection: HostConnection | None = None
        self._all_read = threading.Event()
        self._all_read.set()
        self._reruns = 0
        self._received = 0
        self._killed = False
        self._done = threading.Event()

    def start(self) -> None:
        """Submit the job, and wait for it on a separate thread."""
        threading.Thread(target=self._work, name=f"perago-job-{self._id}", daemon=True).start()

    def kill(self) -> None:
        """Have the host kill its executor. Cancels the job if no host does so in time."""
        with self._lock:
            self._killed, connection = True, self._connection
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.send(Kill())
        seconds = KILL_SECONDS if connection is not None else 0.0
        threading.Thread(
            target=self._cancel, args=(seconds,), name=f"perago-kill-{self._id}", daemon=True
        ).start()

    def _work(self) -> None:
        hosts, attempt = self._hosts, self._run.assignment.attempt
        report, executor_exit = Report(()), None
        try:
            hosts.listener.expect(self._id, self._serve)
            label = f"{attempt.task_name} ({attempt.reference_task_name}, {attempt.workflow_instance_id})"
            report = hosts.jobs.run(self._id, label, partial(host, hosts.plan, self._id, self._run))
            executor_exit = ExecutorExit(report.how) if report.how else None
        except JobLost as lost:
            executor_exit = ExecutorExit(str(lost), heard=False)
        except Exception as error:
            log.exception("could not run a job on the engine")
            executor_exit = ExecutorExit(describe(error), heard=False)
        finally:
            self._done.set()
            hosts.listener.forget(self._id)
            self._finish(report)
            self._over(self, executor_exit)

    def _finish(self, report: Report) -> None:
        """Pass on everything from the connection, then the answers that only the report has."""
        self._all_read.wait(READ_SECONDS)
        with self._lock:
            connection, self._connection = self._connection, None
            for answer in report.said[self._received :]:
                self._pass_on(answer)
            self._splitter.finish()
        if connection is not None:
            connection.disconnect()

    def _serve(self, connection: HostConnection, hello: Connect) -> None:
        """Serve a host's connection, on a thread of the listener."""
        with self._lock:
            is_new = hello.run > self._reruns
            # An attempt that has ended is not rerun, even if the engine lost the host that was cleaning up.
            if self._done.is_set() or hello.run < self._reruns or (is_new and self.ended):
                connection.send(Rejected())
                return
            previous, self._connection = self._connection, connection
            read = self._all_read = threading.Event()
            if is_new:
                self._reruns, self._received = hello.run, 0
                self._callbacks.answered(Rerun(self.execution_id))
            if previous is not None:
                previous.disconnect()
            try:
                connection.send(Accepted(self._received))
                if self._killed:
                    connection.send(Kill())
            except OSError:
                read.set()
                raise
        try:
            while self._receive(connection, connection.recv()):
                pass
        finally:
            read.set()

    def _receive(self, connection: HostConnection, message: Answer | Output) -> bool:
        with self._lock:
            if self._connection is not connection:
                return False
            if isinstance(message, Output):
                self._splitter.feed(message.data)
            else:
                self._received += isinstance(message, KEPT)
                self._pass_on(message)
            return True

    def _pass_on(self, answer: Answer) -> None:
        """Pass on an answer, under the execution id that the supervisor knows."""
        self.ended = self.ended or isinstance(answer, Ended)
        self.cleaned = self.cleaned or isinstance(answer, Cleaned)
        passed_on: Any = answer
        if not isinstance(answer, Logged) and hasattr(answer, "execution_id"):
            passed_on = replace(passed_on, execution_id=self.execution_id)
        self._callbacks.answered(passed_on)

    def _pass_output(self, execution_id: str, line: str) -> None:
        self._callbacks.printed(self.execution_id if execution_id else "", line)

    def _cancel(self, seconds: float) -> None:
        while not self._done.wait(seconds):
            self._hosts.jobs.cancel(self._id)
            seconds = KILL_SECONDS
