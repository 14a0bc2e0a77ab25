"""The contract of every orchestrator about attempts.  No test here names a backend."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from perago.errors import OrchestratorNotFound
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.protocol.outcome import Outcome, completed
from tests.contract.orchestrators import WORKER, Line, brief


class TestPolling:
    def test_a_polled_task_is_in_progress_and_says_all_about_its_attempt(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 42}, answer=42)
        assignment = line.take_one()
        attempt = assignment.attempt
        assert attempt.workflow_instance_id == workflow_id
        assert attempt.reference_task_name == "only"
        assert attempt.task_name == line.task
        assert (attempt.retry_count, attempt.iteration, attempt.seq) == (0, 0, 1)
        assert attempt.response_timeout_seconds == 42
        assert assignment.input == {"given": {"answer": 42}}
        state = line.orchestrator.workflow(workflow_id)
        assert [task.task_id for task in state.tasks] == [attempt.task_id]
        assert brief(state.tasks) == [("only", "IN_PROGRESS", 0)]

    def test_a_batch_takes_as_many_as_it_asks_for_and_none_twice(self, line: Line) -> None:
        line.begin()
        for _ in range(4):
            line.start()
        first = line.take(3)
        rest = line.take(2)
        assert len({assignment.attempt.task_id for assignment in [*first, *rest]}) == 5
        assert line.orchestrator.poll(line.task, worker_id=WORKER, count=5, wait_seconds=0) == []

    def test_a_poll_that_finds_nothing_is_empty(self, line: Line) -> None:
        line.define([line.step("only")])
        assert line.orchestrator.poll(line.task, worker_id=WORKER, count=1, wait_seconds=0.2) == []

    def test_a_poll_of_an_unknown_task_is_empty(self, line: Line) -> None:
        assert line.orchestrator.poll(line.task, worker_id=WORKER, count=1, wait_seconds=0) == []


class TestQueuedTasks:
    def test_a_task_that_can_be_taken_is_waiting_and_stays_so_until_it_is_taken(self, line: Line) -> None:
        line.begin()
        names = [f"{line.task}_of_nobody", line.task]

        # Twice: asking takes nothing.
        assert [line.task in line.orchestrator.queued_task_names(names) for _ in range(2)] == [True, True]
        assert line.take_one().attempt.task_name == line.task

    def test_a_retry_is_waiting_when_its_time_has_come(self, line: Line) -> None:
        line.begin()
        failed = line.take_one().attempt
        line.orchestrator.complete(failed, Outcome("FAILED", reason="no"), worker_id=WORKER)

        assert list(line.orchestrator.queued_task_names([line.task])) == [line.task]
        assert line.take_one().attempt.retry_count == 1


class TestTheCurrentAttempt:
    def test_a_polled_attempt_is_current(self, line: Line) -> None:
        line.begin()
        attempt = line.take_one().attempt
        assert_current_attempt_snapshot(attempt, line.orchestrator.current(attempt))

    def test_a_finished_attempt_shows_how_it_ended(self, line: Line) -> None:
        line.begin()
        assignment = line.work("only")
        snapshot = line.orchestrator.current(assignment.attempt)
        assert snapshot.status == "COMPLETED"
        assert snapshot.task_id == assignment.attempt.task_id

    def test_an_unknown_task_is_not_found(self, line: Line) -> None:
        line.begin()
        unknown = replace(line.take_one().attempt, task_id="00000000-0000-0000-0000-000000000000")
        with pytest.raises(OrchestratorNotFound):
            line.orchestrator.current(unknown)

    def test_a_result_for_an_unknown_task_and_its_lease_are_not_found(self, line: Line) -> None:
        line.begin()
        nowhere = "00000000-0000-0000-0000-000000000000"
        unknown = replace(line.take_one().attempt, task_id=nowhere, workflow_instance_id=nowhere)
        with pytest.raises(OrchestratorNotFound):
            line.orchestrator.complete(unknown, completed({}), worker_id=WORKER)
        with pytest.raises(OrchestratorNotFound):
            line.orchestrator.extend_lease(unknown, worker_id=WORKER)


class TestCompleting:
    def test_a_result_is_accepted_and_kept(self, line: Line) -> None:
        workflow_id = line.begin()
        assert line.send(line.take_one(), rows=[1, {"two": None}], text="é")
        state = line.end_of(workflow_id)
        assert (state.status, state.reason) == ("COMPLETED", None)
        assert state.tasks[0].output == {"rows": [1, {"two": None}], "text": "é"}
        assert state.output == state.tasks[0].output

    def test_a_second_result_is_not_accepted_and_changes_nothing(self, line: Line) -> None:
        workflow_id = line.begin()
        assignment = line.take_one()
        assert line.send(assignment, winner=1)
        assert not line.send(assignment, winner=2)
        assert not line.send(assignment, "FAILED", reason="too late")
        state = line.end_of(workflow_id)
        assert brief(state.tasks) == [("only", "COMPLETED", 0)]
        assert state.tasks[0].output == {"winner": 1}

    def test_a_failure_is_tried_again_under_a_new_task_id(self, line: Line) -> None:
        workflow_id = line.begin(answer=42)
        first = line.take_one()
        assert line.send(first, "FAILED", reason="not today", so_far=1)
        second = line.take_one()
        assert second.attempt.task_id != first.attempt.task_id
        assert second.attempt.retry_count == 1
        assert {first.attempt.workflow_name, second.attempt.workflow_name} == {line.workflow}
        # Revoking goes by this order.
        assert 0 < first.attempt.scheduled_time < second.attempt.scheduled_time
        assert second.attempt.logical_task_key == first.attempt.logical_task_key
        assert second.input == first.input
        assert line.send(second)
        state = line.end_of(workflow_id)
        assert brief(state.tasks) == [("only", "FAILED", 0), ("only", "COMPLETED", 1)]
        assert (state.tasks[0].reason, state.tasks[0].output) == ("not today", {"so_far": 1})

    def test_when_the_retries_run_out_the_workflow_fails_with_the_last_reason(self, line: Line) -> None:
        workflow_id = line.begin()
        line.send(line.take_one(), "FAILED", reason="first")
        last = line.take_one()
        line.send(last, "FAILED", reason="second and last")
        state = line.end_of(workflow_id)
        assert state.status == "FAILED"
        assert state.reason is not None
        assert "second and last" in state.reason
        assert last.attempt.task_id in state.reason
        assert brief(state.tasks) == [("only", "FAILED", 0), ("only", "FAILED", 1)]

    def test_a_terminal_error_fails_the_workflow_at_once(self, line: Line) -> None:
        workflow_id = line.begin()
        line.send(line.take_one(), "FAILED_WITH_TERMINAL_ERROR", reason="no use")
        state = line.end_of(workflow_id)
        assert state.status == "FAILED"
        assert "no use" in str(state.reason)
        assert brief(state.tasks) == [("only", "FAILED_WITH_TERMINAL_ERROR", 0)]

    def test_an_optional_step_that_fails_does_not_stop_the_workflow(self, line: Line) -> None:
        line.define([line.step("may", optional=True), line.step("must", {"after": "${may.status}"})])
        workflow_id = line.start()
        line.send(line.take_one(), "FAILED_WITH_TERMINAL_ERROR", reason="never mind")
        assert line.work("must").input == {"after": "COMPLETED_WITH_ERRORS"}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert brief(state.tasks) == [("may", "COMPLETED_WITH_ERRORS", 0), ("must", "COMPLETED", 0)]


class TestLeases:
    @pytest.mark.slow
    def test_a_lease_that_runs_out_is_a_time_out_and_a_retry(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 1})
        first = line.take_one()
        # Conductor's retry is there a moment before the old task reads as timed out.
        wanted = [("only", "TIMED_OUT", 0), ("only", "SCHEDULED", 1)]
        state = line.until(workflow_id, lambda state: brief(state.tasks) == wanted)
        assert state.tasks[1].task_id != first.attempt.task_id
        second = line.take_one()
        assert (second.attempt.task_id, second.attempt.retry_count) == (state.tasks[1].task_id, 1)

    @pytest.mark.slow
    def test_a_late_result_is_not_accepted_and_the_retry_continues(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 1})
        late = line.take_one()
        line.until(workflow_id, lambda state: brief(state.tasks)[0] == ("only", "TIMED_OUT", 0))
        assert not line.send(late, by="the late one")
        assert line.orchestrator.current(late.attempt).status == "TIMED_OUT"
        assert line.send(line.take_one(), by="the retry")
        state = line.end_of(workflow_id)
        assert brief(state.tasks) == [("only", "TIMED_OUT", 0), ("only", "COMPLETED", 1)]
        assert state.output == {"by": "the retry"}

    @pytest.mark.slow
    def test_an_extended_lease_keeps_the_task_alive(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 4})
        assignment = line.take_one()
        until = time.monotonic() + 9
        while time.monotonic() < until:
            time.sleep(0.5)
            line.orchestrator.extend_lease(assignment.attempt, worker_id=WORKER)
            line.orchestrator.workflow(workflow_id)
        assert_current_attempt_snapshot(assignment.attempt, line.orchestrator.current(assignment.attempt))
        assert line.orchestrator.poll(line.task, worker_id=WORKER, count=1, wait_seconds=0) == []
        assert line.send(assignment)

    def test_nothing_covers_a_result_whose_updates_were_all_answered(self, line: Line) -> None:
        workflow_id = line.begin()
        assignment = line.take_one()
        line.orchestrator.extend_lease(assignment.attempt, worker_id=WORKER)
        assert line.send(assignment, kept=True)
        assert not line.orchestrator.may_be_overwritten(assignment.attempt, left_behind=False)
        assert line.end_of(workflow_id).output == {"kept": True}

    def test_a_lease_of_a_finished_task_is_no_error_and_changes_nothing(self, line: Line) -> None:
        workflow_id = line.begin()
        assignment = line.work("only", kept=True)
        line.orchestrator.extend_lease(assignment.attempt, worker_id=WORKER)
        state = line.end_of(workflow_id)
        assert brief(state.tasks) == [("only", "COMPLETED", 0)]
        assert state.output == {"kept": True}
