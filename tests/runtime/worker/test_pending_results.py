"""A pending result in the worker's events, health and leases."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import OrchestratorUnavailable
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS, HealthState
from perago.runtime.worker.executions import EventPublisher, Execution, Executions
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.inbox import Message, ResultDelayed, ResultStored
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.pending_results import PendingResults
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.result_sender import LEASE_SECONDS
from perago.runtime.worker.task_logs import TaskLogs
from perago.settings import load_settings
from tests.support.faults.disks import spoil
from tests.support.servers.scripted_orchestrator import (
    NoBackend,
    ScriptedOrchestrator,
    an_assignment,
    an_attempt,
    snapshot,
)
from tests.support.worlds.clock import Clock, ManualJob
from tests.support.worlds.inboxes import HandledAtOnce

AWAY = OrchestratorUnavailable("cannot complete task task-1: 500 JSON parse error")


class Leases:
    """Which leases are kept."""

    def __init__(self) -> None:
        self.kept: set[str] = set()

    def keep(self, execution_id: str, _attempt: object, interval: float) -> None:
        assert interval > 0
        self.kept.add(execution_id)

    def let_go(self, execution_id: str) -> None:
        self.kept.discard(execution_id)


class World:
    """The deliveries of a worker whose time, and whose sending, the test moves."""

    def __init__(self, folder: Path, task_logs: TaskLogs, **scripts: Any) -> None:
        self.hand = ManualJob(Clock())
        self.health_state, self.leases, self.events = HealthState([]), Leases(), list[Event]()
        settings = load_settings({"PERAGO_WORKSPACE_ROOT": str(folder)}, root=folder)
        self.plan = WorkerPlan({}, 1, ExecutorSpec(NoBackend(settings), (), ()))
        self.orchestrator = ScriptedOrchestrator(**scripts)
        self.orchestrator.address = "http://here/api"  # type: ignore[attr-defined]
        leases: Any = self.leases
        self.executions = Executions({}, leases, task_logs)
        nothing: Any = None
        publisher = EventPublisher()
        publisher.listen(self.events.append)
        self.deliveries = PendingResults(
            self.executions,
            nothing,
            publisher,
            health_state=self.health_state,
            clock=self.hand.clock,
        )
        ports: Any = (None, self.orchestrator)
        chores: Any = self.hand
        self.deliveries.open(self.plan, ports, chores=chores, inbox=HandledAtOnce(self._handle))

    def _handle(self, message: Message) -> None:
        match message:
            case DeliveryResult():
                self.deliveries.on_delivered(message)
            case ResultDelayed():
                self.deliveries.on_delayed(message)
            case ResultStored(pending, error):
                self.deliveries.on_stored(pending, error)

    def send(self) -> Execution:
        execution = self.executions.admit(an_assignment())
        execution.output_read.set()
        outcome = Outcome("COMPLETED", output={"result": {}})
        self.deliveries.send(execution, PendingResult(execution.id, execution.attempt, outcome))
        return execution

    def reported(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes a world whose orchestrator follows scripts."""
    with TaskLogs(lambda *_: None) as task_logs:
        yield functools.partial(World, tmp_path, task_logs)


def test_a_result_that_waits_is_counted_and_after_a_minute_makes_the_worker_unhealthy_until_it_is_taken(
    world: Callable[..., World],
) -> None:
    here = world(complete=[AWAY, AWAY, True], current=[AWAY])
    here.send()

    here.hand.run_after(0)
    assert here.health_state.problems() == []
    here.hand.run_after(UNHEALTHY_AFTER_SECONDS)
    [(part, reason)] = here.health_state.problems()
    assert part == "result"
    assert reason.startswith("the result of task task-1 (make) has not been accepted for 60 s: ")
    assert "500 JSON parse error" in reason

    assert here.hand.run_after(10) is None
    assert here.health_state.problems() == []
    assert here.reported() == ["not-sent", "not-sent", "accepted"]
    assert len(here.deliveries) == 0


def test_a_result_that_is_never_taken_lets_its_lease_go_and_is_still_unsent(
    world: Callable[..., World],
) -> None:
    here = world(complete=[AWAY], current=[snapshot(an_attempt())])
    execution = here.send()

    here.hand.run_after(0)
    here.hand.run_after(LEASE_SECONDS - 1)
    assert here.leases.kept == {execution.id}
    here.hand.run_after(1)

    assert here.leases.kept == set()
    assert len(here.deliveries) == 1


def test_an_outbox_that_cannot_be_written_is_counted_once_for_a_result_and_unhealthy_until_it_is_sent(
    world: Callable[..., World], tmp_path: Path
) -> None:
    here = world(complete=[AWAY, AWAY, True])
    spoil(tmp_path / "outbox")
    here.send()
    here.hand.run_after(0)
    here.hand.run_after(1)
    assert [part for part, _ in here.health_state.problems()] == ["outbox"]

    here.hand.run_after(1)

    assert here.health_state.problems() == []
    assert here.reported() == ["not-kept", "not-sent", "not-sent", "accepted"]


def test_a_result_whose_file_makes_no_sense_stays_and_the_others_are_sent(
    world: Callable[..., World], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(tmp_path, "http://here/api")
    outbox.put(PendingResult("broken", an_attempt("task-2"), Outcome("COMPLETED")))
    outbox.put(PendingResult("good", an_attempt(), Outcome("COMPLETED")))
    file = tmp_path / "outbox" / "broken.json"
    data = json.loads(file.read_text())
    data["attempt"]["response_timeout_seconds"] = "soon"
    file.write_text(json.dumps(data))
    here = world(current=[snapshot(an_attempt())], complete=[True])

    here.deliveries.resume()
    here.hand.run_after(0)

    assert here.reported() == ["accepted"]
    assert sorted(path.name for path in file.parent.iterdir()) == ["broken.json"]
    assert "task-2 stays in the outbox" in caplog.text
