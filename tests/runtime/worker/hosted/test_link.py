"""Executors that an engine hosts, as a slot sees them: reports of cut connections and lost jobs."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from perago.errors import RuntimeConfigError
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import (
    Cleaned,
    CleanupFailed,
    Ended,
    ExecutorExit,
    Ready,
    Rerun,
    Run,
    StartFailed,
    StepStarted,
    Stop,
)
from perago.runtime.worker.hosted.connection import HostConnection
from perago.runtime.worker.hosted.engine import Endpoint, JobContext, JobLost
from perago.runtime.worker.hosted.host import with_rerun_id
from perago.runtime.worker.hosted.link import Hosted, HostedLink
from perago.runtime.worker.hosted.protocol import Accepted, Connect, HostPlan, Kill, Output, Rejected, Report
from perago.runtime.worker.hosted.transport import call
from perago.runtime.worker.inbox import ExecutorAnswered, ExecutorGone, Inbox
from perago.settings import load_settings
from tests.support.servers.scripted_orchestrator import NoBackend, an_assignment
from tests.support.worlds.inboxes import HandledAtOnce

X = "0123456789abcdef"
BEGAN, ENDED, CLEANED = StepStarted(X, "input"), Ended(X, ExecutionResult(Outcome("COMPLETED"))), Cleaned(X)
Host = Callable[[HostPlan, str], Report]


@dataclass(eq=False)
class ByScript:
    """An engine whose jobs do what the test says, on the thread that waits for them."""

    hosts: list[Host] = field(default_factory=list)
    broken: str = ""
    up: threading.Event | None = None
    cancelled: SimpleQueue[str] = field(default_factory=SimpleQueue)
    port: int = 0

    def open(self) -> Endpoint:
        if self.up is not None:
            assert self.up.wait(20)
        if self.broken:
            raise RuntimeConfigError(self.broken)
        return Endpoint("127.0.0.1", "127.0.0.1", self.port)

    def run(self, job: str, label: str, work: Any) -> Any:
        return self.hosts.pop(0)(work.args[0], job)

    def cancel(self, job: str) -> None:
        self.cancelled.put(job)


@dataclass(eq=False)
class Slot:
    """Keeps all that a link tells, in order."""

    reported: SimpleQueue[Any] = field(default_factory=SimpleQueue)

    mask: Masker = field(default_factory=lambda: Masker([]))

    @property
    def inbox(self) -> Inbox:
        return HandledAtOnce(self._handle)

    def _handle(self, message: ExecutorAnswered | ExecutorGone) -> None:
        reported = message.answer if isinstance(message, ExecutorAnswered) else message.executor_exit
        assert message.slot == 0
        self.reported.put(reported)

    def on_line(self, execution_id: str, line: str) -> None:
        self.reported.put((execution_id, line))

    def on_output_end(self, execution_id: str) -> None:
        pass

    def hears(self, count: int) -> list[Any]:
        return [self.reported.get(timeout=20) for _ in range(count)]


@pytest.fixture
def engine() -> ByScript:
    return ByScript()


@pytest.fixture
def slot() -> Slot:
    return Slot()


@pytest.fixture
def link(engine: ByScript, slot: Slot, tmp_path: Path) -> HostedLink:
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())
    made = Hosted(engine, spec, name="a script").start(0, slot.inbox, slot)
    assert slot.hears(1) == [Ready()]
    return made


def on_the_line(plan: HostPlan, job: str, run: int = 0) -> HostConnection:
    line = call(plan.address, plan.key, Connect(job, run))
    assert isinstance(line.recv(), Accepted)
    return line


def test_messages_that_the_connection_lost_come_with_the_job_in_order_and_once(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    def cut_after_two(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as line:
            line.send(Output(f"\n\x00perago begin {X}\x00\nprinted\n".encode()))
            line.send(BEGAN)
            line.send(StepStarted(X, "body"))
        return Report((BEGAN, StepStarted(X, "body"), ENDED, CLEANED))

    engine.hosts = [cut_after_two]
    link.send(Run(X, an_assignment()))

    assert slot.hears(5) == [(X, "printed"), BEGAN, StepStarted(X, "body"), ENDED, CLEANED]
    link.send(Stop())
    assert slot.hears(1) == [ExecutorExit("nothing left to do")]


def test_a_job_that_is_lost_is_a_death_and_nobody_knows_how_far_it_got(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    def lost(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as line:
            line.send(BEGAN)
        raise JobLost("its machine")

    engine.hosts = [lost]
    link.send(Run(X, an_assignment()))

    assert slot.hears(2) == [BEGAN, ExecutorExit("its machine", complete=False)]


def test_a_process_that_died_is_a_complete_exit(engine: ByScript, slot: Slot, link: HostedLink) -> None:
    engine.hosts = [lambda plan, job: Report((BEGAN,), "exit code 7")]
    link.send(Run(X, an_assignment()))

    assert slot.hears(2) == [BEGAN, ExecutorExit("exit code 7")]


def test_a_job_lost_after_its_ending_costs_the_slot_nothing_but_the_cleaning_up(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    def lost(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as line:
            line.send(ENDED)
        raise JobLost("its machine")

    engine.hosts = [lost, lambda plan, job: Report((replace(ENDED, execution_id="b"), Cleaned("b")))]
    link.send(Run(X, an_assignment()))
    assert slot.hears(2) == [ENDED, CleanupFailed(X)]
    link.send(Run("b", an_assignment("task-2")))

    assert slot.hears(2) == [replace(ENDED, execution_id="b"), Cleaned("b")]


def test_a_rerun_of_the_engine_reports_under_the_same_id_and_the_first_host_is_rejected(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    received = threading.Event()

    def twice(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as first:
            first.send(StepStarted(X, "publish"))
            assert received.wait(20)
            with on_the_line(plan, job, run=1) as second:
                with pytest.raises((EOFError, OSError)):
                    first.recv()
                with call(plan.address, plan.key, Connect(job, 0)) as back:
                    assert isinstance(back.recv(), Rejected)
                second.send(StepStarted(f"{X}r1", "input"))
        return Report((StepStarted(f"{X}r1", "input"), Ended(f"{X}r1", ENDED.result), Cleaned(f"{X}r1")))

    engine.hosts = [twice]
    link.send(Run(X, an_assignment()))

    assert slot.hears(1) == [StepStarted(X, "publish")]
    received.set()
    assert slot.hears(4) == [Rerun(X), BEGAN, ENDED, CLEANED]


def test_a_finished_attempt_is_not_rerun_though_the_engine_wants_to(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    received = threading.Event()

    def again(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as line:
            line.send(ENDED)
            assert received.wait(20)
        with call(plan.address, plan.key, Connect(job, 1)) as back:
            assert isinstance(back.recv(), Rejected)
        return Report((), "no connection to its worker")

    engine.hosts = [again]
    link.send(Run(X, an_assignment()))

    assert slot.hears(1) == [ENDED]
    received.set()
    assert slot.hears(1) == [CleanupFailed(X)]


def test_a_host_is_asked_to_end_its_executor_and_the_job_is_left_to_it(
    engine: ByScript, slot: Slot, link: HostedLink
) -> None:
    inside = threading.Event()

    def killed(plan: HostPlan, job: str) -> Report:
        with on_the_line(plan, job) as line:
            line.send(BEGAN)
            inside.set()
            assert isinstance(line.recv(), Kill)
        return Report((BEGAN,), "signal SIGKILL")

    engine.hosts = [killed]
    link.send(Run(X, an_assignment()))
    assert inside.wait(20)
    link.kill()

    assert slot.hears(2) == [BEGAN, ExecutorExit("signal SIGKILL")]
    assert engine.cancelled.empty()


def test_a_job_that_no_host_accepted_is_cancelled(engine: ByScript, slot: Slot, link: HostedLink) -> None:
    def waits_for_room(plan: HostPlan, job: str) -> Report:
        assert engine.cancelled.get(timeout=20) == job
        raise JobLost("cancelled")

    engine.hosts = [waits_for_room]
    link.send(Run(X, an_assignment()))
    link.kill()

    assert slot.hears(1) == [ExecutorExit("cancelled", complete=False)]


def test_an_engine_that_does_not_start_is_reported_like_an_executor_that_does_not(
    engine: ByScript, slot: Slot, tmp_path: Path
) -> None:
    engine.broken = "no Java"
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())

    Hosted(engine, spec, name="a script").start(0, slot.inbox, slot)

    assert slot.hears(2) == [StartFailed("no Java"), ExecutorExit("an engine that did not start")]


def test_a_port_that_is_taken_is_one_clear_error_before_anything_is_polled(
    engine: ByScript, tmp_path: Path
) -> None:
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        engine.port = taken.getsockname()[1]

        with pytest.raises(
            RuntimeConfigError, match=f"cannot listen at 127.0.0.1:{engine.port} .* spark.perago.port"
        ):
            Hosted(engine, spec, name="a script").check()


def test_a_worker_says_what_it_waits_for_as_long_as_it_waits(
    engine: ByScript, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perago.engine")
    engine.up = reminded = threading.Event()
    caplog.handler.addFilter(lambda record: "still" not in record.getMessage() or reminded.set() or True)
    engine.hosts = [lambda _plan, _job: Report(())]
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())

    Hosted(engine, spec, name="Spark at spark://head:7077", remind=0.001).check()

    said = [re.sub(r"\d+(\.\d+)? s\b", "N s", one) for one in caplog.messages]
    spark = "Spark at spark://head:7077"
    assert said[0] == f"waiting for {spark}: its master and a session"
    assert f"still waiting for {spark}, after N s: its master and a session" in said
    assert f"{spark} is ready after N s" in said
    assert f"waiting for an executor of {spark}: it needs a free core there, and loads the tasks" in said
    assert said[-1] == f"an executor of {spark} is ready after N s"


def test_an_executor_killed_before_its_engine_is_up_reports_nothing_after_its_exit(
    engine: ByScript, slot: Slot, tmp_path: Path
) -> None:
    up, opened = threading.Event(), threading.Event()
    engine.up = up
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())
    hosted = Hosted(engine, spec, name="a script")
    link = HostedLink(hosted, 0, slot.inbox, slot)
    opening = threading.Thread(target=lambda: (link.open(), opened.set()), daemon=True)
    opening.start()

    link.kill()
    up.set()

    assert opened.wait(20)
    assert slot.hears(1) == [ExecutorExit("nothing left to do")]
    assert slot.reported.empty()


def test_an_attempt_that_cannot_travel_is_refused_at_once(link: HostedLink) -> None:
    unfit = replace(an_assignment(), input={"params": lambda: None})

    with pytest.raises(Exception, match="pickle"):
        link.send(Run(X, unfit))


@pytest.mark.parametrize(
    ("given", "again", "name"), [(1, 0, X), (1, 2, f"{X}r2"), (2, 0, f"{X}r100"), (2, 1, f"{X}r101")]
)
def test_no_two_runs_of_an_execution_have_one_id(given: int, again: int, name: str) -> None:
    run = Run(X, an_assignment(), given)

    assert with_rerun_id(run, JobContext(Path("scratch"), again)).execution_id == name
