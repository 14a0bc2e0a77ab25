"""One attempt as a job of an engine, from the worker's side: what its host says, and how the job ended.

A job's host calls once its engine has found room for it.  It may call again, where a line was cut; and another host may call
where the engine runs the job again by itself.  Then the first is turned away, and what it did last is not known.
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
"""How long a host has to end its executor before its job is cancelled."""
LINE_SECONDS = 5.0
"""How long the rest of a line may take to be read, once its job is over."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where jobs go, where their hosts call, and what they bring along."""

    jobs: Jobs
    board: HostListener
    plan: HostPlan


class HostedJob:
    """Runs one attempt; `over` is told once, with how the executor ended where it did."""

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
            self._printed, callbacks.mask, ended=lambda _: callbacks.output_ended(self.execution_id)
        )
        self._lock = threading.Lock()
        self._line: HostConnection | None = None
        self._read = threading.Event()
        self._read.set()
        self._times = 0
        self._heard = 0
        self._killed = False
        self._done = threading.Event()

    def start(self) -> None:
        """Submit the job, and wait for it on a thread of its own."""
        threading.Thread(target=self._work, name=f"perago-job-{self._id}", daemon=True).start()

    def kill(self) -> None:
        """Have the host end its executor; cancel the job where no host does."""
        with self._lock:
            self._killed, line = True, self._line
            if line is not None:
                with contextlib.suppress(OSError):
                    line.send(Kill())
        patience = KILL_SECONDS if line is not None else 0.0
        threading.Thread(
            target=self._cancel, args=(patience,), name=f"perago-kill-{self._id}", daemon=True
        ).start()

    def _work(self) -> None:
        hosts, attempt = self._hosts, self._run.assignment.attempt
        report, executor_exit = Report(()), None
        try:
            hosts.board.expect(self._id, self._take)
            label = f"{attempt.task_name} ({attempt.reference_task_name}, {attempt.workflow_instance_id})"
            report = hosts.jobs.run(self._id, label, partial(host, hosts.plan, self._id, self._run))
            executor_exit = ExecutorExit(report.how) if report.how else None
        except JobLost as lost:
            executor_exit = ExecutorExit(str(lost), heard=False)
        except Exception as error:
            log.exception("a job of the engine could not be run")
            executor_exit = ExecutorExit(describe(error), heard=False)
        finally:
            self._done.set()
            hosts.board.forget(self._id)
            self._finish(report)
            self._over(self, executor_exit)

    def _finish(self, report: Report) -> None:
        """Tell what the line has told, then what it has not."""
        self._read.wait(LINE_SECONDS)
        with self._lock:
            line, self._line = self._line, None
            for answer in report.said[self._heard :]:
                self._tell(answer)
            self._splitter.finish()
        if line is not None:
            line.disconnect()

    def _take(self, line: HostConnection, hello: Connect) -> None:
        """On a thread of the switchboard's: a host is on the line."""
        with self._lock:
            is_new = hello.run > self._times
            # What is settled is not run again, though the engine has lost who cleaned up after it.
            if self._done.is_set() or hello.run < self._times or (is_new and self.ended):
                line.send(Rejected())
                return
            before, self._line = self._line, line
            read = self._read = threading.Event()
            if is_new:
                self._times, self._heard = hello.run, 0
                self._callbacks.answered(Rerun(self.execution_id))
            if before is not None:
                before.disconnect()
            try:
                line.send(Accepted(self._heard))
                if self._killed:
                    line.send(Kill())
            except OSError:
                read.set()
                raise
        try:
            while self._hear(line, line.recv()):
                pass
        finally:
            read.set()

    def _hear(self, line: HostConnection, message: Answer | Output) -> bool:
        with self._lock:
            if self._line is not line:
                return False
            if isinstance(message, Output):
                self._splitter.feed(message.data)
            else:
                self._heard += isinstance(message, KEPT)
                self._tell(message)
            return True

    def _tell(self, answer: Answer) -> None:
        """Pass on an answer, under the id that the supervisor knows."""
        self.ended = self.ended or isinstance(answer, Ended)
        self.cleaned = self.cleaned or isinstance(answer, Cleaned)
        known: Any = answer
        if not isinstance(answer, Logged) and hasattr(answer, "execution_id"):
            known = replace(known, execution_id=self.execution_id)
        self._callbacks.answered(known)

    def _printed(self, execution_id: str, line: str) -> None:
        self._callbacks.printed(self.execution_id if execution_id else "", line)

    def _cancel(self, patience: float) -> None:
        while not self._done.wait(patience):
            self._hosts.jobs.cancel(self._id)
            patience = KILL_SECONDS
