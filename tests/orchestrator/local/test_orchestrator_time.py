"""When the embedded orchestrator hands out tasks and ends them: leases, retries, time-outs and limits, by its clock."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome, completed
from tests.support.servers.local_orchestrator import TASKDEF, brief, poll, start
from tests.support.tasks.workflows import simple
from tests.support.worlds.clock import Clock


class TestTime:
    def test_a_poll_waits_for_a_retry_that_becomes_due(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        start(orchestrator)
        (first,) = poll(orchestrator)
        orchestrator.complete(first.attempt, Outcome("FAILED", reason="x"), worker_id="me")
        assert poll(orchestrator, wait_seconds=9) == []
        (second,) = poll(orchestrator, wait_seconds=5)
        assert second.attempt.retry_count == 1

    @pytest.mark.parametrize("back", [1, 3600, 10**9])
    def test_waiting_tasks_are_handed_out_after_the_clock_was_set_back(
        self, orchestrator: LocalOrchestrator, clock: Clock, back: int
    ) -> None:
        start(orchestrator)
        clock.now -= back
        (first,) = poll(orchestrator)
        orchestrator.complete(first.attempt, Outcome("FAILED", reason="x"), worker_id="me")
        assert poll(orchestrator, wait_seconds=9) == []
        clock.now -= back + 9
        (second,) = poll(orchestrator)
        assert second.attempt.retry_count == 1

    def test_a_rate_limit_does_not_count_what_began_before_the_clock_was_set_back(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        limits = {"rateLimitPerFrequency": 1, "rateLimitFrequencyInSeconds": 60}
        orchestrator.register_taskdefs([{**TASKDEF, **limits}])
        for _ in range(2):
            start(orchestrator)
        assert len(poll(orchestrator)) == 1
        assert poll(orchestrator) == []
        clock.now -= 3600
        assert len(poll(orchestrator)) == 1

    def test_a_poll_with_work_does_not_sleep(self, orchestrator: LocalOrchestrator, clock: Clock) -> None:
        start(orchestrator)
        assert len(poll(orchestrator, wait_seconds=60)) == 1
        assert clock.slept == []

    def test_a_poll_for_nothing_takes_nothing(self, orchestrator: LocalOrchestrator) -> None:
        start(orchestrator)
        assert poll(orchestrator, 0) == []
        assert len(poll(orchestrator)) == 1

    def test_a_lease_counts_from_the_last_sign_of_life(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        workflow_id = start(orchestrator)
        (one,) = poll(orchestrator)
        for _ in range(5):
            clock.now += 20
            orchestrator.extend_lease(one.attempt, worker_id="me")
            assert brief(orchestrator, workflow_id) == [("a", "IN_PROGRESS", 0)]
        clock.now += 30
        assert brief(orchestrator, workflow_id) == [("a", "TIMED_OUT", 0), ("a", "SCHEDULED", 1)]

    def test_a_lease_that_ran_out_unseen_is_over_for_the_fence_and_for_the_result(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        start(orchestrator)
        (one,) = poll(orchestrator)
        clock.now += 30
        assert orchestrator.current(one.attempt).status == "TIMED_OUT"
        start(orchestrator)
        (other,) = poll(orchestrator)
        clock.now += 30
        assert not orchestrator.complete(other.attempt, completed({}), worker_id="me")

    def test_a_tick_sees_to_everything_that_is_due(
        self, orchestrator: LocalOrchestrator, path: Path, clock: Clock
    ) -> None:
        start(orchestrator)
        start(orchestrator)
        assert len(poll(orchestrator, 2)) == 2
        clock.now += 30
        orchestrator.tick()
        with closing(sqlite3.connect(path)) as file:
            rows = file.execute("SELECT status, count(*) FROM task GROUP BY status ORDER BY status")
            assert rows.fetchall() == [("SCHEDULED", 2), ("TIMED_OUT", 2)]

    def test_the_workflows_own_time_runs_out(self, orchestrator: LocalOrchestrator, clock: Clock) -> None:
        workflow_id = start(orchestrator, simple("a"), timeoutSeconds=60, timeoutPolicy="TIME_OUT_WF")
        clock.now += 60
        assert orchestrator.workflow(workflow_id).status == "TIMED_OUT"
        assert poll(orchestrator) == []


class TestLimits:
    def test_no_more_tasks_are_in_progress_than_the_taskdef_allows(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        orchestrator.register_taskdefs([{**TASKDEF, "concurrentExecLimit": 2}])
        for _ in range(4):
            start(orchestrator)
        first = poll(orchestrator, 10)
        assert len(first) == 2
        assert poll(orchestrator, 10) == []
        orchestrator.complete(first[0].attempt, completed({}), worker_id="me")
        assert len(poll(orchestrator, 10)) == 1

    def test_no_more_tasks_start_in_a_span_than_the_taskdef_allows(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        orchestrator.register_taskdefs(
            [{**TASKDEF, "rateLimitPerFrequency": 2, "rateLimitFrequencyInSeconds": 60}]
        )
        for _ in range(5):
            start(orchestrator)
        assert len(poll(orchestrator, 10)) == 2
        clock.now += 25
        assert poll(orchestrator, 10) == []
        clock.now += 35
        assert len(poll(orchestrator, 10)) == 2

    def test_tasks_come_in_the_order_they_were_scheduled(self, orchestrator: LocalOrchestrator) -> None:
        started = [start(orchestrator) for _ in range(3)]
        assert [one.attempt.workflow_instance_id for one in poll(orchestrator, 3)] == started
