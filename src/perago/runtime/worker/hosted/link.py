"""Executors hosted by an engine, as seen by the slots.

To a slot, a hosted executor is ready as soon as its engine is, and takes one attempt after another.  Each attempt is a
separate job, which finds or starts one of Perago's executor processes on one of the engine's machines.

    the process died               the host reports the executor's exit, and the slot starts another one
    the job is lost                the executor is gone, and how far it got is unknown
    either one, after the          staging branches may be left behind; the slot has already moved on
    result was sent
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from perago.errors import RuntimeConfigError
from perago.protocol.outcome import describe
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import (
    Answer,
    CleanupFailed,
    ExecutorExit,
    Ready,
    Request,
    Run,
    StartFailed,
)
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.engine import Endpoint, JobLost, Jobs
from perago.runtime.worker.hosted.host import host
from perago.runtime.worker.hosted.job import HostedJob, Hosts
from perago.runtime.worker.hosted.protocol import Accepted, Connect, HostPlan, Report
from perago.runtime.worker.hosted.transport import HostListener
from perago.runtime.worker.inbox import ExecutorAnswered, ExecutorGone, Inbox
from perago.runtime.worker.output_capture import OutputListener

log = logging.getLogger("perago.engine")
REMINDER_SECONDS = 15.0


class Hosted:
    """Starts executors on an engine; `name` is the engine's name, as shown in messages.

    While the first executor starts, a log line says every `remind` seconds what the worker is waiting for.
    """

    def __init__(
        self, jobs: Jobs, spec: ExecutorSpec, *, name: str, remind: float = REMINDER_SECONDS
    ) -> None:
        self._jobs = jobs
        self._remind = remind
        # Otherwise the log would end up in one of the engine's files, on another machine.
        self._spec = replace(spec, passes_logs=True)
        self._name = name
        self._lock = threading.Lock()
        self._hosts: Hosts | None = None

    def __str__(self) -> str:
        """Return the engine's name."""
        return self._name

    def open(self) -> Hosts:
        """Start the engine and the listener for its hosts, if necessary."""
        with self._lock:
            endpoint = self._jobs.open()
            if self._hosts is None:
                listener = _listen(endpoint)
                session = secrets.token_hex(8)
                plan = HostPlan(session, self._spec, Path.cwd(), listener.address, listener.key)
                self._hosts = Hosts(self._jobs, listener, plan)
            return self._hosts

    def check(self) -> None:
        """Start one executor, so that problems show up before the worker polls.

        Raises `RuntimeConfigError` if the executor does not become ready.
        """
        with _waiting_for(str(self), "its master and a session", self._remind):
            hosts = self.open()
        job = f"check-{hosts.plan.session}"
        hosts.listener.expect(job, _discard_messages)
        try:
            needs = "it needs a free core there, and loads the tasks"
            with _waiting_for(f"an executor of {self}", needs, self._remind):
                report = hosts.jobs.run(job, "perago start", partial(host, hosts.plan, job, None))
        except JobLost as lost:
            raise RuntimeConfigError(f"no job runs on {self}: {lost}") from lost
        finally:
            hosts.listener.forget(job)
        if report.exit_reason:
            raise RuntimeConfigError(_explain(report, self._name, hosts.listener.address))

    def start(self, number: int, inbox: Inbox, output: OutputListener) -> HostedLink:
        """Start an executor.  It is ready as soon as the engine is running."""
        link = HostedLink(self, number, inbox, output)
        threading.Thread(target=link.open, name=f"perago-slot-{number}", daemon=True).start()
        return link


class HostedLink:
    """One hosted executor, as seen by its slot. `send` and `kill` are called on the supervisor's thread."""

    def __init__(self, hosted: Hosted, number: int, inbox: Inbox, output: OutputListener) -> None:
        self._hosted = hosted
        self._number = number
        self._inbox = inbox
        self._output = output
        self._hosts: Hosts | None = None
        self._lock = threading.Lock()
        self._jobs: set[HostedJob] = set()
        self._stopping = False
        self._gone = False

    def open(self) -> None:
        """Wait for the engine, then report `Ready` or `StartFailed`."""
        try:
            self._hosts = self._hosted.open()
        except Exception as error:
            self._post(StartFailed(describe(error)))
            self._report_exit(ExecutorExit("an engine that did not start"))
            return
        with self._lock:
            # A killed executor must not report anything further.
            if not self._gone:
                self._post(Ready())

    def send(self, request: Request) -> None:
        """Run the attempt in a `Run` request. Any other request makes the executor exit after its last job."""
        if isinstance(request, Run):
            assert self._hosts is not None  # noqa: S101 - set before `Ready`
            # Pickle now, so that a failure reaches the caller.
            pickle.dumps(request)
            job = HostedJob(self._hosts, request, self._number, inbox=self._inbox, output=self._output)
            with self._lock:
                self._jobs.add(job)
            name = f"perago-job-{job.id}"
            threading.Thread(target=self._run_job, args=(job,), name=name, daemon=True).start()
        else:
            self._stop()

    def kill(self) -> None:
        """Kill all jobs. The executor exits once they have ended."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.kill()
        self._stop()

    def close(self) -> None:
        """Do nothing: there is nothing left to close."""

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            idle = not self._jobs
        if idle:
            self._report_exit(ExecutorExit("nothing left to do"))

    def _run_job(self, job: HostedJob) -> None:
        executor_exit = None
        try:
            executor_exit = job.run()
        finally:
            self._on_job_end(job, executor_exit)

    def _on_job_end(self, job: HostedJob, executor_exit: ExecutorExit | None) -> None:
        """Handle the end of a job. If it ended before its attempt did, this executor is gone too."""
        with self._lock:
            self._jobs.discard(job)
            idle = self._stopping and not self._jobs
        if not job.ended:
            self._report_exit(executor_exit or ExecutorExit("no report from its host"))
            return
        if not job.cleaned:
            self._post(CleanupFailed(job.execution_id))
        if idle:
            self._report_exit(ExecutorExit("nothing left to do"))

    def _post(self, answer: Answer) -> None:
        self._inbox.post(ExecutorAnswered(self._number, answer))

    def _report_exit(self, executor_exit: ExecutorExit) -> None:
        with self._lock:
            already, self._gone = self._gone, True
        if not already:
            self._inbox.post(ExecutorGone(self._number, executor_exit))


@contextlib.contextmanager
def _waiting_for(what: str, needs: str, remind: float) -> Iterator[None]:
    """Log what the worker waits for, at once and then regularly until the `with` block ends."""
    began, ended = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not ended.wait(remind):
            log.info("still waiting for %s, after %.0f s: %s", what, time.monotonic() - began, needs)

    log.info("waiting for %s: %s", what, needs)
    threading.Thread(target=repeat, name="perago-engine-wait", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
    log.info("%s is ready after %.1f s", what, time.monotonic() - began)


def _discard_messages(connection: HostConnection, _connect: Connect) -> None:
    with contextlib.suppress(EOFError):
        connection.send(Accepted(0))
        while True:
            connection.recv()


def _listen(endpoint: Endpoint) -> HostListener:
    try:
        return HostListener(endpoint)
    except OSError as error:
        at = f"{endpoint.bind}:{endpoint.port}" if endpoint.port else endpoint.bind
        raise RuntimeConfigError(
            f"the worker cannot listen at {at} for its executors: {error.strerror or error}; set spark.perago.port in "
            "PERAGO_SPARK_CONF to a free port or leave it out, and spark.driver.bindAddress to an address of this machine"
        ) from error


def _explain(report: Report, engine: str, address: tuple[str, int]) -> str:
    """Explain why no executor became ready, and what to do about it."""
    for answer in report.answers:
        if isinstance(answer, StartFailed):
            return (
                f"the executors of {engine} cannot run these tasks: {answer.reason}; "
                "install what is missing there, or send it with --py-files"
            )
    if not report.answers and report.exit_reason.startswith("no connection to its worker"):
        return (
            f"the executors of {engine} cannot connect to this worker at {address[0]}:{address[1]}: {report.exit_reason}; "
            "set spark.driver.host in PERAGO_SPARK_CONF to an address of this machine that they can reach"
        )
    return f"no executor could be started on {engine}: {report.exit_reason}"
