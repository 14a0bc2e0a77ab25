"""A worker that cannot work stops polling, reports why, probes by itself, and continues when a probe succeeds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeForbidden, LakeNotFound, LakeUnauthenticated, LakeUnavailable
from perago.lake.local.lake import LocalLake
from perago.protocol.outcome import Outcome
from perago.protocol.worker_faults import WorkerFault
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.health import HealthState, check
from perago.runtime.worker.inbox import Inbox
from perago.runtime.worker.job_scheduler import Job
from perago.runtime.worker.self_check import IN_A_ROW, SelfCheck, ask_lake, probe_worker
from tests.support.faults.ports import refusing
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.worlds.clock import eventually
from tests.support.worlds.inboxes import HandledAtOnce
from tests.support.worlds.worker_world import WorkerWorld

REAL_ONLY = pytest.mark.parametrize(
    "world", [pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow])], indirect=True
)
DONE = ExecutionResult(Outcome("COMPLETED"), step="publish")


def failed(
    reason: str = "who are you?", own: WorkerFault | None = "keys", step: str = "input"
) -> ExecutionResult:
    return ExecutionResult(Outcome("FAILED", reason=reason), step=step, worker_fault=own)


class Chores:
    """A job scheduler with one job, which the test runs."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.job: Job | None = None

    def add(self, _key: object, job: Job, *, after: float) -> None:
        self.pauses.append(after)
        self.job = job

    def cancel(self, _key: object) -> None:
        self.job = None

    def run(self) -> None:
        job, self.job = self.job, None
        assert job is not None
        job()


class Setup:
    """A worker's fitness, and what it depends on."""

    def __init__(self) -> None:
        self.chores = Chores()
        self.health_state = HealthState([], clock=lambda: 0.0)
        self.trouble: Exception | None = LakeUnauthenticated("still not")
        chores: Any = self.chores
        inbox = HandledAtOnce(lambda message: self.self_check.on_probed(message.problem))
        self.self_check = SelfCheck(self._probe, chores, inbox, health_state=self.health_state)
        self.self_check.ready(0)

    def _probe(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def end(self, *endings: ExecutionResult, has_workspace: bool = True) -> None:
        for finished in endings:
            self.self_check.count_result(finished, has_workspace=has_workspace)


@pytest.fixture
def setup() -> Setup:
    return Setup()


def test_a_few_failures_in_a_row_for_its_own_reasons_pause_a_worker(setup: Setup) -> None:
    setup.end(*[failed()] * (IN_A_ROW - 1))
    assert setup.self_check.fit
    assert check(setup.health_state).healthy

    setup.end(failed())

    assert not setup.self_check.fit
    assert check(setup.health_state).reasons == ("the worker cannot work, and does not poll: who are you?",)


@pytest.mark.parametrize(
    "ending", [DONE, failed("ValueError", own=None, step="body"), failed("refused", own=None, step="publish")]
)
def test_an_attempt_that_got_past_its_first_call_shows_that_the_worker_can_work(
    setup: Setup, ending: ExecutionResult
) -> None:
    setup.end(failed(), failed(), ending, failed(), failed())

    assert setup.self_check.fit


def test_an_attempt_without_a_workspace_and_one_with_a_wrong_input_do_not_count(setup: Setup) -> None:
    setup.end(failed(), failed())
    setup.end(DONE, has_workspace=False)
    setup.end(failed("no such repository", own=None))
    setup.end(failed())

    assert not setup.self_check.fit


def test_any_number_of_failures_that_are_not_its_own_leave_the_worker_polling(setup: Setup) -> None:
    setup.end(*[failed("no such repository", own=None)] * 10)

    assert setup.self_check.fit
    assert setup.chores.pauses == []


def test_a_paused_worker_probes_with_growing_delays_and_reports_the_error(setup: Setup) -> None:
    setup.end(*[failed()] * IN_A_ROW)
    for _ in range(8):
        setup.chores.run()

    assert setup.chores.pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert check(setup.health_state).reasons == ("the worker cannot work, and does not poll: still not",)


def test_a_worker_polls_again_when_its_probe_succeeds(setup: Setup) -> None:
    setup.end(*[failed()] * IN_A_ROW)
    setup.trouble = None

    setup.chores.run()

    assert setup.self_check.fit
    assert check(setup.health_state).healthy
    assert setup.chores.job is None


def test_after_a_successful_probe_one_more_failure_pauses_the_worker_for_longer(setup: Setup) -> None:
    setup.trouble = None
    setup.end(*[failed()] * IN_A_ROW)
    setup.chores.run()

    setup.end(failed())

    assert not setup.self_check.fit
    assert setup.chores.pauses == [5, 10]


def test_an_attempt_that_worked_forgives_all(setup: Setup) -> None:
    setup.trouble = None
    setup.end(*[failed()] * IN_A_ROW)
    setup.chores.run()

    setup.end(DONE, failed(), failed())
    assert setup.self_check.fit

    setup.end(failed())
    assert setup.chores.pauses == [5, 5]


def test_failures_of_attempts_that_were_still_in_flight_change_nothing(setup: Setup) -> None:
    setup.end(*[failed()] * (IN_A_ROW + 4))

    assert setup.chores.pauses == [5]


def test_a_worker_that_drains_does_not_try_any_more(setup: Setup) -> None:
    setup.end(*[failed()] * (IN_A_ROW - 1))
    setup.self_check.stop()
    setup.end(failed())

    assert setup.chores.job is None


# --- executors ---------------------------------------------------------------------------------------------------


def test_a_worker_is_unhealthy_until_its_first_executor_is_ready() -> None:
    health_state = HealthState([], clock=lambda: 0.0)
    chores: Any = Chores()
    self_check = SelfCheck(lambda: None, chores, Inbox(), health_state=health_state)
    assert check(health_state).reasons == ("no executor has become ready yet",)

    self_check.ready(1)

    assert check(health_state).healthy


def test_a_slot_whose_executors_never_become_ready_makes_the_worker_unhealthy_until_one_does(
    setup: Setup,
) -> None:
    for _ in range(IN_A_ROW):
        assert check(setup.health_state).healthy
        setup.self_check.not_ready(1, "ImportError: no module")

    assert check(setup.health_state).reasons == (
        "executor 1 did not become ready 3 times in a row: ImportError: no module",
    )
    assert setup.self_check.fit, "the other slots go on"
    setup.self_check.ready(1)
    assert check(setup.health_state).healthy


# --- the try -----------------------------------------------------------------------------------------------------


def test_a_lake_that_answers_and_a_root_that_can_be_written_are_enough(tmp_path: Path) -> None:
    probe_worker(LocalLake(tmp_path / "lake"), tmp_path)

    assert os.listdir(tmp_path) == ["lake"]


@pytest.mark.parametrize("answer", [LakeNotFound("none"), LakeForbidden("not that one")])
def test_a_lakes_answer_about_one_repository_means_the_lake_works(tmp_path: Path, answer: Exception) -> None:
    ask_lake(refusing(LocalLake(tmp_path), "head", error=answer))


@pytest.mark.parametrize("answer", [LakeUnauthenticated("who?"), LakeUnavailable("away")])
def test_a_lake_that_does_not_know_the_keys_or_does_not_answer_will_not_do(
    tmp_path: Path, answer: Exception
) -> None:
    with pytest.raises(type(answer)):
        ask_lake(refusing(LocalLake(tmp_path), "head", error=answer))


def test_a_root_that_is_full_will_not_do(tmp_path: Path) -> None:
    (tmp_path / ".probe").symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left"):
        probe_worker(LocalLake(tmp_path / "lake"), tmp_path)


# --- a whole worker ----------------------------------------------------------------------------------------------


@REAL_ONLY
def test_a_worker_with_refused_keys_uses_three_retries_and_continues_when_they_are_accepted(
    world: WorkerWorld,
) -> None:
    refusing_all = Fault("answer", ".", times=0, status=401)
    with fault_proxy(world.environ["LAKECTL_SERVER_ENDPOINT_URL"], refusing_all) as proxy:
        worker = world.start_worker(slots=1, LAKECTL_SERVER_ENDPOINT_URL=proxy.url)
        # With such keys a worker does not even start: they are taken back while it runs.
        world.registered()
        refusing_all.times = 10**9
        workflow_id = world.start_workflow({})
        eventually(lambda: "cannot work yet" in worker.said(), "the worker has tried by itself")
        assert [task.status for task in world.workflow(workflow_id).tasks] == ["FAILED"] * 3 + ["SCHEDULED"]

        refusing_all.times = 0

        done = world.finished(workflow_id)
        assert [task.status for task in done.tasks] == ["FAILED"] * 3 + ["COMPLETED"]
        assert worker.drain() == 0
