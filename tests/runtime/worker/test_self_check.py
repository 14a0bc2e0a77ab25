"""A worker that cannot work stops polling, says why, tries by itself, and goes on when that works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeForbidden, LakeNotFound, LakeUnauthenticated, LakeUnavailable
from perago.lake.local.lake import LocalLake
from perago.protocol.outcome import Outcome
from perago.protocol.worker_faults import OwnReason
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.health import HealthState, check
from perago.runtime.worker.job_scheduler import Job
from perago.runtime.worker.self_check import IN_A_ROW, SelfCheck, ask_lake, probe_worker
from tests.support.faults.ports import refusing
from tests.support.faults.proxy import Fault, fault_proxy
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Site

REAL_ONLY = pytest.mark.parametrize(
    "site", [pytest.param("real", marks=[pytest.mark.servers, pytest.mark.slow])], indirect=True
)
DONE = ExecutionResult(Outcome("COMPLETED"), step="publish")


def failed(
    reason: str = "who are you?", own: OwnReason | None = "keys", step: str = "input"
) -> ExecutionResult:
    return ExecutionResult(Outcome("FAILED", reason=reason), step=step, own_reason=own)


class Chores:
    """A timetable whose one job the test runs."""

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


class World:
    """A worker's fitness, and what it depends on."""

    def __init__(self) -> None:
        self.chores = Chores()
        self.health_state = HealthState([], clock=lambda: 0.0)
        self.trouble: Exception | None = LakeUnauthenticated("still not")
        chores: Any = self.chores
        self.self_check = SelfCheck(
            self._probe, chores, post=lambda note: note(), health_state=self.health_state
        )
        self.self_check.ready(0)

    def _probe(self) -> None:
        if self.trouble is not None:
            raise self.trouble

    def end(self, *endings: ExecutionResult, has_workspace: bool = True) -> None:
        for settled in endings:
            self.self_check.ended(settled, has_workspace=has_workspace)


@pytest.fixture
def world() -> World:
    return World()


def test_a_few_failures_in_a_row_for_its_own_reasons_make_a_worker_unfit(world: World) -> None:
    world.end(*[failed()] * (IN_A_ROW - 1))
    assert world.self_check.fit
    assert check(world.health_state).healthy

    world.end(failed())

    assert not world.self_check.fit
    assert check(world.health_state).reasons == ("the worker cannot work, and does not poll: who are you?",)


@pytest.mark.parametrize(
    "ending", [DONE, failed("ValueError", own=None, step="body"), failed("refused", own=None, step="publish")]
)
def test_an_attempt_that_got_past_its_first_call_shows_that_the_worker_can_work(
    world: World, ending: ExecutionResult
) -> None:
    world.end(failed(), failed(), ending, failed(), failed())

    assert world.self_check.fit


def test_an_attempt_without_a_workspace_and_one_with_a_wrong_input_show_nothing(world: World) -> None:
    world.end(failed(), failed())
    world.end(DONE, has_workspace=False)
    world.end(failed("no such repository", own=None))
    world.end(failed())

    assert not world.self_check.fit


def test_any_number_of_failures_that_are_not_its_own_leave_it_fit(world: World) -> None:
    world.end(*[failed("no such repository", own=None)] * 10)

    assert world.self_check.fit
    assert world.chores.pauses == []


def test_it_tries_by_itself_with_growing_pauses_and_says_what_it_finds(world: World) -> None:
    world.end(*[failed()] * IN_A_ROW)
    for _ in range(8):
        world.chores.run()

    assert world.chores.pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert check(world.health_state).reasons == ("the worker cannot work, and does not poll: still not",)


def test_it_polls_again_when_its_own_try_works(world: World) -> None:
    world.end(*[failed()] * IN_A_ROW)
    world.trouble = None

    world.chores.run()

    assert world.self_check.fit
    assert check(world.health_state).healthy
    assert world.chores.job is None


def test_after_a_try_that_worked_one_more_failure_is_enough_and_the_pause_is_longer(world: World) -> None:
    world.trouble = None
    world.end(*[failed()] * IN_A_ROW)
    world.chores.run()

    world.end(failed())

    assert not world.self_check.fit
    assert world.chores.pauses == [5, 10]


def test_an_attempt_that_worked_forgives_all(world: World) -> None:
    world.trouble = None
    world.end(*[failed()] * IN_A_ROW)
    world.chores.run()

    world.end(DONE, failed(), failed())
    assert world.self_check.fit

    world.end(failed())
    assert world.chores.pauses == [5, 5]


def test_failures_of_attempts_that_were_still_in_flight_change_nothing(world: World) -> None:
    world.end(*[failed()] * (IN_A_ROW + 4))

    assert world.chores.pauses == [5]


def test_a_worker_that_drains_does_not_try_any_more(world: World) -> None:
    world.end(*[failed()] * (IN_A_ROW - 1))
    world.self_check.stop()
    world.end(failed())

    assert world.chores.job is None


# --- executors ---------------------------------------------------------------------------------------------------


def test_a_worker_is_unhealthy_until_its_first_executor_is_ready() -> None:
    health_state = HealthState([], clock=lambda: 0.0)
    chores: Any = Chores()
    self_check = SelfCheck(lambda: None, chores, post=lambda note: note(), health_state=health_state)
    assert check(health_state).reasons == ("no executor has become ready yet",)

    self_check.ready(1)

    assert check(health_state).healthy


def test_a_slot_whose_executors_never_become_ready_makes_the_worker_unhealthy_until_one_does(
    world: World,
) -> None:
    for _ in range(IN_A_ROW):
        assert check(world.health_state).healthy
        world.self_check.not_ready(1, "ImportError: no module")

    assert check(world.health_state).reasons == (
        "executor 1 did not become ready 3 times in a row: ImportError: no module",
    )
    assert world.self_check.fit, "the other slots go on"
    world.self_check.ready(1)
    assert check(world.health_state).healthy


# --- the try -----------------------------------------------------------------------------------------------------


def test_a_lake_that_answers_and_a_root_that_can_be_written_are_enough(tmp_path: Path) -> None:
    probe_worker(LocalLake(tmp_path / "lake"), tmp_path)

    assert os.listdir(tmp_path) == ["lake"]


@pytest.mark.parametrize("answer", [LakeNotFound("none"), LakeForbidden("not that one")])
def test_what_a_lake_says_of_one_repository_is_an_answer(tmp_path: Path, answer: Exception) -> None:
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
def test_a_worker_whose_keys_are_refused_burns_three_retries_and_goes_on_when_they_are_taken(
    site: Site,
) -> None:
    refusing_all = Fault("answer", ".", times=0, status=401)
    with fault_proxy(site.environ["LAKECTL_SERVER_ENDPOINT_URL"], refusing_all) as proxy:
        worker = site.start_worker(slots=1, LAKECTL_SERVER_ENDPOINT_URL=proxy.url)
        # With such keys a worker does not even start: they are taken back while it runs.
        site.registered()
        refusing_all.times = 10**9
        workflow_id = site.start_workflow({})
        eventually(lambda: "cannot work yet" in worker.said(), "the worker has tried by itself")
        assert [task.status for task in site.workflow(workflow_id).tasks] == ["FAILED"] * 3 + ["SCHEDULED"]

        refusing_all.times = 0

        done = site.finished(workflow_id)
        assert [task.status for task in done.tasks] == ["FAILED"] * 3 + ["COMPLETED"]
        assert worker.drain() == 0
