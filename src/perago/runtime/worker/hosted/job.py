"""The worker's side of an attempt that runs as an engine's job: the messages from its host, and how the job ended.

A job's host connects once the engine has started the job, and reconnects if the connection breaks.  If the engine
reruns the job on its own, another host connects.  The first host is then rejected, and its last actions are unknown.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from perago.protocol.outcome import describe
from perago.runtime.worker.executor_protocol import (
    Answer,
    Cleaned,
    Ended,
    ExecutorExit,
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
from perago.runtime.worker.inbox import ExecutorAnswered, Inbox
from perago.runtime.worker.output_capture import LineSplitter, OutputListener

log = logging.getLogger("perago.slot")

KILL_SECONDS = 5.0
"""Time that a host has to kill its executor before its job is cancelled."""
READ_SECONDS = 5.0
"""Time limit for reading the remaining messages from a connection once its job is over."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The engine that runs jobs, the listener that their hosts connect to, and the plan that is sent with each job."""

    jobs: Jobs
    listener: HostListener
    plan: HostPlan


class HostedJob:
    """Runs one attempt as a job.  Messages from its host are posted as if sent by the executor of slot `number`."""

    def __init__(
        self, hosts: Hosts, request: Run, number: int, *, inbox: Inbox, output: OutputListener
    ) -> None:
        self.execution_id = request.execution_id
        self.id = f"{request.execution_id}-{request.handouts}"
        self.ended = self.cleaned = False
        self._hosts = hosts
        self._request = request
        self._number = number
        self._inbox = inbox
        self._output = output
        self.mask = output.mask
        self._splitter = LineSplitter(self)
        self._lock = threading.Lock()
        self._connection: HostConnection | None = None
        self._all_read = threading.Event()
        self._all_read.set()
        self._reruns = 0
        self._received = 0
        self._killed = False
        self._done = threading.Event()

    def kill(self) -> None:
        """Have the host kill its executor. Cancels the job if no host does so in time."""
        with self._lock:
            self._killed, connection = True, self._connection
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.send(Kill())
        seconds = KILL_SECONDS if connection is not None else 0.0
        threading.Thread(
            target=self._cancel, args=(seconds,), name=f"perago-kill-{self.id}", daemon=True
        ).start()

    def run(self) -> ExecutorExit | None:
        """Run the attempt to its end.  Returns the executor's exit, or None if the executor is still alive."""
        hosts, attempt = self._hosts, self._request.assignment.attempt
        report = Report(())
        try:
            hosts.listener.expect(self.id, self._serve)
            label = f"{attempt.task_name} ({attempt.reference_task_name}, {attempt.workflow_instance_id})"
            report = hosts.jobs.run(self.id, label, partial(host, hosts.plan, self.id, self._request))
            return ExecutorExit(report.exit_reason) if report.exit_reason else None
        except JobLost as lost:
            return ExecutorExit(str(lost), complete=False)
        except Exception as error:
            log.exception("could not run a job on the engine")
            return ExecutorExit(describe(error), complete=False)
        finally:
            self._done.set()
            hosts.listener.forget(self.id)
            self._finish(report)

    def on_line(self, execution_id: str, line: str) -> None:
        """Forward a line of output under the execution id that the supervisor knows."""
        self._output.on_line(self.execution_id if execution_id else "", line)

    def on_output_end(self, _execution_id: str) -> None:
        """Report that all output has been read."""
        self._output.on_output_end(self.execution_id)

    def _finish(self, report: Report) -> None:
        """Wait for the remaining messages on the connection, then forward those that only the job's report contains."""
        self._all_read.wait(READ_SECONDS)
        with self._lock:
            connection, self._connection = self._connection, None
            for answer in report.answers[self._received :]:
                self._pass_on(answer)
            self._splitter.finish()
        if connection is not None:
            connection.disconnect()

    def _serve(self, connection: HostConnection, hello: Connect) -> None:
        """Serve a host's connection.  Runs on one of the listener's threads."""
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
                self._post(Rerun(self.execution_id))
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
        """Forward a message to the supervisor, under the execution id that it knows."""
        self.ended = self.ended or isinstance(answer, Ended)
        self.cleaned = self.cleaned or isinstance(answer, Cleaned)
        passed_on: Any = answer
        if not isinstance(answer, Logged) and hasattr(answer, "execution_id"):
            passed_on = replace(passed_on, execution_id=self.execution_id)
        self._post(passed_on)

    def _post(self, answer: Answer) -> None:
        self._inbox.post(ExecutorAnswered(self._number, answer))

    def _cancel(self, seconds: float) -> None:
        while not self._done.wait(seconds):
            self._hosts.jobs.cancel(self.id)
            seconds = KILL_SECONDS
