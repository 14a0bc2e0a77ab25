"""Resuming, pausing and terminating workflows on every orchestrator.  No test here names a backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorRefused
from perago.orchestrator.base import Assignment
from tests.contract.orchestrators import WORKER, Line, brief, by_reference, fork

Taken = TypeVar("Taken")


def failed_with_canceled(line: Line, fail: Callable[[], Taken], *names: str) -> tuple[str, Taken]:
    """A workflow that `fail` has made fail, and whose open steps of these names were canceled by that.

    Conductor evaluates a JOIN without the workflow's lock, and sometimes writes it back as open after it was canceled.
    Such a workflow is left alone, and another one started.
    """
    for _ in range(5):
        workflow_id = line.start()
        taken = fail()
        line.end_of(workflow_id)
        if line.comes_to(
            workflow_id, lambda state: {by_reference(state)[name].status for name in names} == {"CANCELED"}
        ):
            return workflow_id, taken
    raise AssertionError(f"of five workflows that failed, none had {', '.join(names)} canceled")


class TestResume:
    def test_a_failed_workflow_resumes_at_the_failed_step_whatever_its_retries(self, line: Line) -> None:
        line.define([line.step("one"), line.step("two", {"n": "${one.output.n}"})], taskdef={"retryCount": 0})
        workflow_id = line.start()
        line.work("one", n=7)
        failed = line.take_one()
        line.send(failed, "FAILED", reason="broken", part=1)
        assert line.end_of(workflow_id).status == "FAILED"

        line.orchestrator.retry_workflow(workflow_id)

        again = line.take_one()
        assert (again.attempt.reference_task_name, again.attempt.retry_count) == ("two", 1)
        assert again.input == {"n": 7}
        assert again.attempt.task_id != failed.attempt.task_id
        # Revoking goes by it: a later attempt stops the earlier ones, and never the other way round.
        assert again.attempt.scheduled_time > failed.attempt.scheduled_time
        assert not line.send(failed)
        assert line.send(again)
        state = line.end_of(workflow_id)
        assert (state.status, state.reason) == ("COMPLETED", None)
        assert brief(state.tasks) == [("one", "COMPLETED", 0), ("two", "FAILED", 0), ("two", "COMPLETED", 1)]
        assert [task.reason for task in state.tasks] == [None, "broken", None]

    @pytest.mark.parametrize("status", ["FAILED", "FAILED_WITH_TERMINAL_ERROR"])
    def test_a_resumed_workflow_can_fail_and_resume_again(self, line: Line, status: str) -> None:
        workflow_id = line.begin(taskdef={"retryCount": 0})
        for retry_count in range(2):
            assignment = line.take_one()
            assert assignment.attempt.retry_count == retry_count
            line.send(assignment, status, reason="no")
            assert line.end_of(workflow_id).status == "FAILED"
            line.orchestrator.retry_workflow(workflow_id)
        line.work("only")
        assert line.end_of(workflow_id).status == "COMPLETED"

    def test_canceled_branches_of_a_fork_resume_and_finished_ones_stay_finished(self, line: Line) -> None:
        # Ended by NOOPs: Conductor's JOIN may mistake an arm that is about to continue for a failed one.
        arms = {"left": "${left.output}", "right_too": "${right_too.output}"}
        line.define([*fork(line, last={"type": "NOOP"}), line.step("after", arms)], taskdef={"retryCount": 0})

        def fail() -> None:
            branches = {one.attempt.reference_task_name: one for one in line.take(2)}
            assert line.send(branches["left"], by="left")
            assert line.send(branches["right"], by="right")
            line.send(line.take_one(), "FAILED", reason="broken")

        workflow_id, _ = failed_with_canceled(line, fail, "join")

        line.orchestrator.retry_workflow(workflow_id)

        assert line.work("right_too", by="right_too").attempt.retry_count == 1
        assert line.work("after").input == {"left": {"by": "left"}, "right_too": {"by": "right_too"}}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert [task.reference for task in state.tasks].count("left") == 1

    def test_a_join_that_waits_for_noops_never_sees_an_arm_fail_that_is_tried_again(self, line: Line) -> None:
        forked, join = fork(line, last={"type": "NOOP"})
        line.define(
            [forked, join, line.step("after", {"joined": "${join.output}"})],
            taskdef={"retryCount": 4, "retryDelaySeconds": 0},
        )
        workflow_id = line.start()
        branches = {one.attempt.reference_task_name: one for one in line.take(2)}
        assert line.send(branches["left"], by="left")
        failing = branches["right"]
        # Conductor's JOIN looks every 50 ms at first, and three failures out of four end a workflow that joins on "right".
        for _ in range(4):
            assert line.send(failing, "FAILED", reason="not yet")
            failing = line.take_one()
        assert line.send(failing)
        line.work("right_too")
        assert line.work("after").input == {"joined": {}}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert {by_reference(state)[name].status for name in ("left_last", "right_last", "join")} == {
            "COMPLETED"
        }

    def test_both_open_branches_of_a_fork_resume(self, line: Line) -> None:
        # Ended by NOOPs: Conductor's JOIN may mistake an arm that is about to continue for a failed one.
        line.define([*fork(line, last={"type": "NOOP"})], taskdef={"retryCount": 0})

        def fail() -> dict[str, Assignment]:
            branches = {one.attempt.reference_task_name: one for one in line.take(2)}
            line.send(branches["right"], "FAILED", reason="broken")
            return branches

        workflow_id, branches = failed_with_canceled(line, fail, "left", "join")

        line.orchestrator.retry_workflow(workflow_id)

        again = line.take(2)
        assert {(one.attempt.reference_task_name, one.attempt.retry_count) for one in again} == {
            ("left", 1),
            ("right", 1),
        }
        assert not line.send(branches["left"])
        assert [line.send(one) for one in again] == [True, True]
        line.work("right_too")
        assert line.end_of(workflow_id).status == "COMPLETED"

    def test_a_loop_resumes_in_its_iteration(self, line: Line) -> None:
        loop = {
            "name": "loop",
            "taskReferenceName": "loop",
            "type": "DO_WHILE",
            "loopCondition": "if ($.loop['iteration'] < 2) { true; } else { false; }",
            "loopOver": [line.step("one"), line.step("two")],
        }
        line.define([loop, line.step("after")], taskdef={"retryCount": 0})
        workflow_id = line.start()
        line.work("one__1", n=1)
        line.work("two__1", n=10)
        failed = line.take_one()
        line.send(failed, "FAILED", reason="broken")
        line.end_of(workflow_id)
        line.until(workflow_id, lambda state: by_reference(state)["loop"].status == "CANCELED")

        line.orchestrator.retry_workflow(workflow_id)

        again = line.work("one__2", n=2).attempt
        assert (again.retry_count, again.iteration) == (1, 2)
        line.work("two__2", n=20)
        line.work("after")
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert by_reference(state)["loop"].output == {
            "iteration": 2,
            "1": {"one": {"n": 1}, "two": {"n": 10}},
            "2": {"one": {"n": 2}, "two": {"n": 20}},
        }

    def test_a_case_of_a_switch_resumes(self, line: Line) -> None:
        switch = {
            "name": "switch",
            "taskReferenceName": "which",
            "type": "SWITCH",
            "evaluatorType": "value-param",
            "expression": "kind",
            "inputParameters": {"kind": "a"},
            "decisionCases": {"a": [line.step("in_a"), line.step("in_a_too")]},
        }
        line.define([switch, line.step("after")], taskdef={"retryCount": 0})
        workflow_id = line.start()
        line.work("in_a")
        line.send(line.take_one(), "FAILED", reason="broken")
        line.end_of(workflow_id)
        line.orchestrator.retry_workflow(workflow_id)
        line.work("in_a_too")
        line.work("after")
        assert line.end_of(workflow_id).status == "COMPLETED"

    @pytest.mark.slow
    def test_a_timed_out_workflow_resumes_with_its_whole_time(self, line: Line) -> None:
        line.define([line.step("one"), line.step("two")], timeoutSeconds=2, timeoutPolicy="TIME_OUT_WF")
        workflow_id = line.start()
        late = line.take_one()
        time.sleep(2.1)
        assert line.end_of(workflow_id).status == "TIMED_OUT"
        line.until(workflow_id, lambda state: by_reference(state)["one"].status == "CANCELED")

        line.orchestrator.retry_workflow(workflow_id)

        again = line.take_one()
        assert (again.attempt.reference_task_name, again.attempt.retry_count) == ("one", 1)
        assert not line.send(late)
        assert line.orchestrator.workflow(workflow_id).status == "RUNNING"

    def test_a_workflow_that_runs_or_is_done_or_is_missing_does_not_resume(self, line: Line) -> None:
        workflow_id = line.begin()
        with pytest.raises(OrchestratorRefused):
            line.orchestrator.retry_workflow(workflow_id)
        line.work("only")
        line.end_of(workflow_id)
        with pytest.raises(OrchestratorRefused):
            line.orchestrator.retry_workflow(workflow_id)
        with pytest.raises(OrchestratorNotFound):
            line.orchestrator.retry_workflow("00000000-0000-0000-0000-000000000000")

    def test_a_retry_says_how_many_there_are_and_when_it_comes(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"retryCount": 3, "retryDelaySeconds": 50})
        before = time.time()
        line.send(line.take_one(), "FAILED", reason="broken")
        state = line.until(workflow_id, lambda state: len(state.tasks) == 2)
        assert [task.retry_limit for task in state.tasks] == [3, 3]
        # The server's clock is this machine's; its seconds are whole.
        assert 48 < state.tasks[1].available - before < 110


class TestControl:
    def test_a_paused_workflow_takes_results_and_schedules_nothing_until_it_is_resumed(
        self, line: Line
    ) -> None:
        line.define([line.step("one"), line.step("two")])
        workflow_id = line.start()
        one = line.take_one()

        line.orchestrator.pause_workflow(workflow_id)

        assert line.send(one)
        paused = line.orchestrator.workflow(workflow_id)
        assert (paused.status, brief(paused.tasks)) == ("PAUSED", [("one", "COMPLETED", 0)])
        line.orchestrator.resume_workflow(workflow_id)
        line.work("two")
        assert line.end_of(workflow_id).status == "COMPLETED"

    def test_a_terminated_workflow_has_its_reason_and_can_be_retried(self, line: Line) -> None:
        workflow_id = line.begin()
        taken = line.take_one()

        line.orchestrator.terminate_workflow(workflow_id, "changed my mind: 100% & more")

        state = line.end_of(workflow_id)
        assert (state.status, state.reason) == ("TERMINATED", "changed my mind: 100% & more")
        assert brief(state.tasks) == [("only", "CANCELED", 0)]
        assert not line.send(taken)
        line.orchestrator.retry_workflow(workflow_id)
        line.work("only")
        assert line.end_of(workflow_id).status == "COMPLETED"

    def test_a_paused_workflow_can_be_terminated_but_not_retried(self, line: Line) -> None:
        workflow_id = line.begin()
        line.orchestrator.pause_workflow(workflow_id)
        with pytest.raises(OrchestratorRefused, match="PAUSED"):
            line.orchestrator.retry_workflow(workflow_id)
        line.orchestrator.terminate_workflow(workflow_id, "enough")
        assert line.end_of(workflow_id).status == "TERMINATED"

    def test_a_change_that_does_not_fit_the_status_is_refused(self, line: Line) -> None:
        control = line.orchestrator
        workflow_id = line.begin(taskdef={"retryCount": 0})
        with pytest.raises(OrchestratorRefused, match="it is RUNNING"):
            control.resume_workflow(workflow_id)
        control.pause_workflow(workflow_id)
        with pytest.raises(OrchestratorRefused, match="it is PAUSED"):
            control.pause_workflow(workflow_id)
        control.resume_workflow(workflow_id)
        line.send(line.take_one(), "FAILED", reason="broken")
        line.end_of(workflow_id)
        for change in (
            control.pause_workflow,
            control.resume_workflow,
            lambda one: control.terminate_workflow(one, "late"),
        ):
            with pytest.raises(OrchestratorRefused, match="it is FAILED"):
                change(workflow_id)
            with pytest.raises(OrchestratorNotFound):
                change("00000000-0000-0000-0000-000000000000")

    def test_a_task_tells_its_last_poller_and_its_lease(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 77})
        taken = line.take_one()
        (before,) = line.orchestrator.workflow(workflow_id).tasks
        assert line.orchestrator.current(taken.attempt).worker_id == WORKER
        assert (before.worker, before.response_seconds) == (WORKER, 77.0)
        assert before.updated is not None
        time.sleep(0.01)  # the server's times are in milliseconds

        line.orchestrator.extend_lease(taken.attempt, worker_id="another")

        (after,) = line.orchestrator.workflow(workflow_id).tasks
        assert after.updated is not None
        assert after.updated > before.updated
        # A lease extension does not make another worker the last poller.
        assert line.orchestrator.current(taken.attempt).worker_id == WORKER
