"""A Conductor behind a proxy that answers in its place: nothing finished is thrown away, and it is said.

The adapter, the result sender and the leases are real; only the server follows a script.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from perago.errors import OrchestratorUnavailable
from perago.orchestrator.conductor.orchestrator import ConductorOrchestrator
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS, HealthState, check
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.inbox import AttemptOver, Message, ResultDelayed
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.leases import LeaseKeeper
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.result_sender import LEASE_SECONDS, ResultSender
from tests.support.servers.scripted_orchestrator import ScriptedOrchestrator, an_attempt, snapshot
from tests.support.servers.scripted_server import NGINX, Answer, Request, scripted
from tests.support.worlds.clock import Clock, ManualJob, eventually
from tests.support.worlds.inboxes import HandledAtOnce, ResultReports

ATTEMPT = an_attempt()
DONE = Outcome("COMPLETED", output={"result": {"rows": 3}})
SPRING = {"timestamp": "2026-11-16T10:00:00Z", "status": 404, "error": "Not Found", "path": "/api/tasks"}
GONE = {"status": 404, "message": "Task not found for taskId: task-1", "instance": "vm", "retryable": False}
NOT_NOW: list[Any] = [
    pytest.param((404, NGINX.format("404 Not Found")), id="nginx 404"),
    pytest.param((404, SPRING), id="Spring 404"),
    pytest.param((401, NGINX.format("401 Authorization Required")), id="401"),
    pytest.param((403, {"message": "Forbidden"}), id="403"),
    pytest.param((302, ""), id="a login page"),
    pytest.param((500, {"status": 500, "message": "JSON parse error", "instance": "vm"}), id="500"),
    pytest.param((502, NGINX.format("502 Bad Gateway")), id="502"),
]


def a_task(status: str = "IN_PROGRESS") -> dict[str, Any]:
    return {
        "workflowInstanceId": "workflow-1",
        "taskId": "task-1",
        "referenceTaskName": "step",
        "taskDefName": "make",
        "retryCount": 0,
        "seq": 1,
        "status": status,
        "outputData": dict(DONE.output or {}) if status == "COMPLETED" else {},
    }


@contextmanager
def conductor(answer: Callable[[Request], Answer]) -> Iterator[tuple[Any, ConductorOrchestrator]]:
    with (
        scripted(answer) as server,
        closing(ConductorOrchestrator(server.url, sleep=lambda _: None)) as orchestrator,
    ):
        yield server, orchestrator


# --- results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", NOT_NOW)
def test_a_result_that_a_proxy_answers_in_conductors_place_is_kept_and_sent_as_it_was(
    tmp_path: Path, instead: Answer
) -> None:
    reports = ResultReports()
    back = threading.Event()

    def answer(request: Request) -> Answer:
        if not back.is_set():
            return instead
        return (200, "task-1") if request.method == "POST" else (200, a_task("COMPLETED"))

    with conductor(answer) as (server, orchestrator), JobScheduler("test", threads=1) as table:
        outbox = Outbox(tmp_path, orchestrator.address)
        sender = ResultSender(
            *(orchestrator, None, outbox, table, "worker", 500),
            inbox=reports,
            mask=Masker([]),
        )
        sender.send(PendingResult("execution", ATTEMPT, DONE))
        reports.delays.get(timeout=10)
        reports.delays.get(timeout=10)
        assert [pending.outcome for pending in outbox.unsent()] == [DONE]
        back.set()

        assert reports.delivered.get(timeout=10).accepted

    sent = [request.body for request in server.seen("POST", "/tasks")]
    assert all('"COMPLETED"' in body for body in sent)
    assert list(outbox.unsent()) == []


@pytest.mark.parametrize("status", [400, 413])
def test_a_result_that_is_refused_is_sent_as_failed(tmp_path: Path, status: int) -> None:
    reports = ResultReports()

    def answer(request: Request) -> Answer:
        if request.method == "POST":
            return (status, NGINX.format("no")) if '"COMPLETED"' in request.body else (200, "task-1")
        return 200, a_task("FAILED")

    with conductor(answer) as (_, orchestrator), JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, None, Outbox(tmp_path), table, "worker", 500), inbox=reports, mask=Masker([])
        )
        sender.send(PendingResult("execution", ATTEMPT, DONE))

        assert reports.delivered.get(timeout=10).pending.outcome.status == "FAILED"


def test_a_result_of_a_task_that_conductor_does_not_know_is_given_up(tmp_path: Path) -> None:
    reports = ResultReports()

    with conductor(lambda _: (404, GONE)) as (_, orchestrator), JobScheduler("test", threads=1) as table:
        outbox = Outbox(tmp_path, orchestrator.address)
        sender = ResultSender(
            *(orchestrator, None, outbox, table, "worker", 500), inbox=reports, mask=Masker([])
        )
        sender.send(PendingResult("execution", ATTEMPT, DONE))

        assert not reports.delivered.get(timeout=10).accepted

    assert list(outbox.unsent()) == []


def stuck(
    tmp_path: Path, *current: Any
) -> tuple[ManualJob, list[ResultDelayed], list[DeliveryResult], Outbox]:
    """A result that the server answers with 500 every time, and what it says of its task."""
    error = OrchestratorUnavailable("cannot complete task task-1: 500 JSON parse error")
    hand, delays, delivered = ManualJob(Clock()), list[ResultDelayed](), list[DeliveryResult]()

    def keep(message: Message) -> None:
        if isinstance(message, ResultDelayed):
            delays.append(message)
        elif isinstance(message, DeliveryResult):
            delivered.append(message)

    orchestrator: Any = ScriptedOrchestrator(complete=[error], current=current)
    scheduler: Any = hand
    sender = ResultSender(
        *(orchestrator, None, Outbox(tmp_path), scheduler, "worker", 500),  # type: ignore[arg-type]
        inbox=HandledAtOnce(keep),
        mask=Masker([]),
        clock=hand.clock,
    )
    sender.send(PendingResult("execution", ATTEMPT, DONE))
    return hand, delays, delivered, sender.outbox


def test_a_result_that_is_never_accepted_gives_up_its_lease_after_an_hour_and_stays_in_the_outbox(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand, delays, delivered, outbox = stuck(tmp_path, snapshot(ATTEMPT))

    for seconds in (0, UNHEALTHY_AFTER_SECONDS, LEASE_SECONDS, 10):
        assert hand.run_after(seconds) is not None

    assert [(delay.too_long, delay.let_go) for delay in delays] == [
        (False, False),
        (True, False),
        (True, True),
        (True, False),
    ]
    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 2
    assert "500 JSON parse error" in said[0]
    assert "its lease is no longer extended" in said[1]
    assert [pending.outcome for pending in outbox.unsent()] == [DONE]
    assert not delivered


def test_a_result_that_is_never_taken_is_given_up_when_its_task_is_over(tmp_path: Path) -> None:
    hand, _, delivered, outbox = stuck(tmp_path, snapshot(ATTEMPT), snapshot(ATTEMPT, "TIMED_OUT"))

    for seconds in (0, UNHEALTHY_AFTER_SECONDS, 10):
        hand.run_after(seconds)

    assert [(one.accepted, one.reason) for one in delivered] == [(False, "it is TIMED_OUT")]
    assert list(outbox.unsent()) == []


def test_a_server_that_says_nothing_at_all_keeps_its_results_and_their_leases(tmp_path: Path) -> None:
    hand, delays, delivered, outbox = stuck(tmp_path, OrchestratorUnavailable("away"))

    for seconds in (0, UNHEALTHY_AFTER_SECONDS, 2 * LEASE_SECONDS):
        assert hand.run_after(seconds) is not None

    assert not any(delay.let_go for delay in delays)
    assert not delivered
    assert len(list(outbox.unsent())) == 1


# --- leases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", NOT_NOW)
def test_a_lease_outlives_a_proxy_that_answers_in_conductors_place(instead: Answer) -> None:
    failed, renewed = threading.Event(), threading.Event()

    def answer(request: Request) -> Answer:
        if not failed.is_set():
            return instead
        if request.method == "POST":
            renewed.set()
        return 200, a_task()

    def not_over(message: Message) -> None:
        assert isinstance(message, Event), f"told to stop: {message}"
        assert message.kind == "lease-failed"
        failed.set()

    with (
        conductor(answer) as (_, orchestrator),
        LeaseKeeper(orchestrator, "worker", HandledAtOnce(not_over)) as leases,
    ):
        leases.keep("execution", ATTEMPT, 0.01)

        assert renewed.wait(10)


def test_an_attempt_that_conductor_itself_does_not_know_is_stopped() -> None:
    reported: SimpleQueue[Message] = SimpleQueue()

    with (
        conductor(lambda _: (404, GONE)) as (_, orchestrator),
        LeaseKeeper(orchestrator, "worker", HandledAtOnce(reported.put)) as leases,
    ):
        leases.keep("execution", ATTEMPT, 0.01)

        message = reported.get(timeout=10)
        assert isinstance(message, AttemptOver)
        assert "Task not found" in message.why


def test_a_lease_that_is_not_extended_for_a_minute_makes_the_worker_unhealthy_until_it_is() -> None:
    clock = Clock()
    health_state = HealthState([], clock=clock)
    failures: SimpleQueue[None] = SimpleQueue()
    back = threading.Event()

    def failed(_: object) -> None:
        clock.now += 45
        failures.put(None)

    def extend(request: Request) -> Answer:
        return (200, a_task()) if back.is_set() or request.method == "GET" else (403, "no")

    with (
        conductor(extend) as (_, orchestrator),
        LeaseKeeper(
            orchestrator, "worker", HandledAtOnce(failed), health_state=health_state, clock=clock
        ) as leases,
    ):
        leases.keep("execution", ATTEMPT, 0.0)
        failures.get(timeout=10)
        failures.get(timeout=10)
        health_state.beat()
        reason = eventually(lambda: check(health_state).reasons, "the lease is unhealthy")[0]
        assert reason.startswith("the lease of task task-1 (make) was not extended for ")
        assert "403" in reason

        back.set()
        eventually(lambda: not health_state.problems(), "all is well again")


def test_a_lease_that_is_let_go_is_not_wrong_any_more() -> None:
    clock = Clock()
    health_state = HealthState([], clock=clock)
    failures: SimpleQueue[None] = SimpleQueue()

    def failed(_: object) -> None:
        clock.now += 100
        failures.put(None)

    away = OrchestratorUnavailable("away")
    orchestrator: Any = ScriptedOrchestrator(current=[away], extend_lease=[away])
    with LeaseKeeper(
        orchestrator, "worker", HandledAtOnce(failed), health_state=health_state, clock=clock
    ) as leases:
        leases.keep("execution", ATTEMPT, 0.0)
        eventually(health_state.problems, "the lease is unhealthy")
        leases.let_go("execution")

    assert health_state.problems() == []


# --- the outbox --------------------------------------------------------------------------------------------------


def test_a_result_for_another_server_stays_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Outbox(tmp_path, "http://old/api").put(PendingResult("execution", ATTEMPT, DONE))

    assert list(Outbox(tmp_path, "http://new/api").unsent()) == []

    [said] = [record.getMessage() for record in caplog.records]
    assert "task-1" in said
    assert "is for http://old/api, not for http://new/api" in said
    assert [pending.outcome for pending in Outbox(tmp_path, "http://old/api").unsent()] == [DONE]


def test_a_result_of_a_worker_that_noted_no_server_is_sent(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, "http://new/api")
    outbox.put(PendingResult("execution", ATTEMPT, DONE))
    file = tmp_path / "outbox" / "execution.json"
    old = file.read_text().replace(', "server": "http://new/api"', "")
    assert "server" not in old
    file.write_text(old)

    assert [pending.execution_id for pending in outbox.unsent()] == ["execution"]
