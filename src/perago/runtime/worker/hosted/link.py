"""Executors that an engine hosts, as slots see them.

For a slot such an executor is there as soon as its engine is, and takes one attempt after the other.  Each attempt is a job
of its own, which finds a process of ours on one of the engine's machines, or starts one there.

    its process died            so did the executor, as the host says: the slot starts another one
    the job is lost             so did the executor, and nobody knows how far it got
    either, after the ending    the attempt's staging may be left; the slot has gone on
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from perago.errors import RuntimeConfigError
from perago.protocol.outcome import describe
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import (
    CleanupFailed,
    ExecutorExit,
    LinkCallbacks,
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


class Hosted:
    """Starts executors on an engine; `name` is what people call it."""

    def __init__(self, jobs: Jobs, spec: ExecutorSpec, *, name: str) -> None:
        self._jobs = jobs
        # There the log would be in a file of the engine's that nobody reads.
        self._spec = replace(spec, passes_logs=True)
        self._name = name
        self._lock = threading.Lock()
        self._hosts: Hosts | None = None

    def __str__(self) -> str:
        """The engine."""
        return self._name

    def open(self) -> Hosts:
        """Have the engine up, and a place where its hosts can call."""
        with self._lock:
            door = self._jobs.open()
            if self._hosts is None:
                board = _listening(door)
                session = secrets.token_hex(8)
                plan = HostPlan(session, self._spec, Path.cwd(), board.address, board.key)
                self._hosts = Hosts(self._jobs, board, plan)
            return self._hosts

    def check(self) -> None:
        """Have one executor become ready; what keeps it from that is one clear error before anything is polled."""
        hosts = self.open()
        job = f"check-{hosts.plan.session}"
        hosts.board.expect(job, _hear_out)
        try:
            report = hosts.jobs.run(job, "perago start", partial(host, hosts.plan, job, None))
        except JobLost as lost:
            raise RuntimeConfigError(f"no job runs on {self}: {lost}") from lost
        finally:
            hosts.board.forget(job)
        if report.how:
            raise RuntimeConfigError(_explained(report, self._name, hosts.board.address))

    def start(self, number: int, callbacks: LinkCallbacks) -> HostedLink:
        """Start one, which is ready once the engine is up."""
        link = HostedLink(self, callbacks)
        threading.Thread(target=link.open, name=f"perago-slot-{number}", daemon=True).start()
        return link


class HostedLink:
    """One executor, as a slot sees it; `send` and `kill` are called from the supervisor's thread."""

    def __init__(self, hosted: Hosted, callbacks: LinkCallbacks) -> None:
        self._hosted = hosted
        self._callbacks = callbacks
        self._hosts: Hosts | None = None
        self._lock = threading.Lock()
        self._jobs: set[HostedJob] = set()
        self._leaving = False
        self._gone = False

    def open(self) -> None:
        """Wait for the engine, and say so."""
        try:
            self._hosts = self._hosted.open()
        except Exception as error:
            self._callbacks.answered(StartFailed(describe(error)))
            self._depart(ExecutorExit("an engine that did not start"))
            return
        with self._lock:
            # One that was killed meanwhile has said its last word.
            if not self._gone:
                self._callbacks.answered(Ready())

    def send(self, request: Request) -> None:
        """Have an attempt run, or leave once all jobs are over."""
        if isinstance(request, Run):
            assert self._hosts is not None  # noqa: S101 - it has said that it is ready
            # Now, while the caller can still be told that it does not travel.
            pickle.dumps(request)
            job = HostedJob(self._hosts, request, self._callbacks, self._over)
            with self._lock:
                self._jobs.add(job)
            job.start()
        else:
            self._leave()

    def kill(self) -> None:
        """End every job, and leave."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.kill()
        self._leave()

    def close(self) -> None:
        """Nothing is left by now."""

    def _leave(self) -> None:
        with self._lock:
            self._leaving = True
            idle = not self._jobs
        if idle:
            self._depart(ExecutorExit("nothing left to do"))

    def _over(self, job: HostedJob, executor_exit: ExecutorExit | None) -> None:
        """A job is over; where its executor is gone, so is this one, unless its attempt was settled before."""
        with self._lock:
            self._jobs.discard(job)
            idle = self._leaving and not self._jobs
        if not job.ended:
            self._depart(executor_exit or ExecutorExit("no word"))
            return
        if not job.cleaned:
            self._callbacks.answered(CleanupFailed(job.execution_id))
        if idle:
            self._depart(ExecutorExit("nothing left to do"))

    def _depart(self, executor_exit: ExecutorExit) -> None:
        with self._lock:
            already, self._gone = self._gone, True
        if not already:
            self._callbacks.gone(executor_exit)


def _hear_out(line: HostConnection, _hello: Connect) -> None:
    with contextlib.suppress(EOFError):
        line.send(Accepted(0))
        while True:
            line.recv()


def _listening(door: Endpoint) -> HostListener:
    try:
        return HostListener(door)
    except OSError as error:
        at = f"{door.bind}:{door.port}" if door.port else door.bind
        raise RuntimeConfigError(
            f"the worker cannot listen at {at} for its executors: {error.strerror or error}; set spark.perago.port in "
            "PERAGO_SPARK_CONF to a free port or leave it out, and spark.driver.bindAddress to an address of this machine"
        ) from error


def _explained(report: Report, engine: str, address: tuple[str, int]) -> str:
    """Why no executor became ready, and what to do."""
    for said in report.said:
        if isinstance(said, StartFailed):
            return (
                f"the executors of {engine} cannot run these tasks: {said.reason}; "
                "install what is missing there, or send it with --py-files"
            )
    if not report.said and "no line" in report.how:
        return (
            f"the executors of {engine} cannot call this worker at {address[0]}:{address[1]}: {report.how}; "
            "set spark.driver.host in PERAGO_SPARK_CONF to an address of this machine that they can reach"
        )
    return f"no executor could be started on {engine}: {report.how}"
