"""What every orchestrator keeps, whatever it is made of.  No test here names a backend."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from perago.errors import OrchestratorNotFound, OrchestratorRefused
from perago.orchestrator.base import Orchestrator, WorkflowState, WorkflowSummary
from perago.protocol.attempt import assert_current_attempt_snapshot
from perago.protocol.attempt_record import MOST_BYTES, AttemptRecord, CheckRecord, record_line
from perago.protocol.outcome import completed
from tests.contract.orchestrators import WORKER, Line, brief, by_reference


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

    def test_an_optional_step_that_fails_lets_the_workflow_go_on(self, line: Line) -> None:
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
        state = line.until(workflow_id, lambda state: len(state.tasks) == 2)
        assert brief(state.tasks) == [("only", "TIMED_OUT", 0), ("only", "SCHEDULED", 1)]
        assert state.tasks[1].task_id != first.attempt.task_id
        second = line.take_one()
        assert (second.attempt.task_id, second.attempt.retry_count) == (state.tasks[1].task_id, 1)

    @pytest.mark.slow
    def test_a_late_result_is_not_accepted_and_the_retry_goes_on(self, line: Line) -> None:
        workflow_id = line.begin(taskdef={"responseTimeoutSeconds": 1})
        late = line.take_one()
        line.until(workflow_id, lambda state: len(state.tasks) == 2)
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

    def test_a_lease_of_a_finished_task_is_no_error_and_changes_nothing(self, line: Line) -> None:
        workflow_id = line.begin()
        assignment = line.work("only", kept=True)
        line.orchestrator.extend_lease(assignment.attempt, worker_id=WORKER)
        state = line.end_of(workflow_id)
        assert brief(state.tasks) == [("only", "COMPLETED", 0)]
        assert state.output == {"kept": True}


class TestDefinitions:
    def test_an_unknown_taskdef_is_none(self, line: Line) -> None:
        assert line.orchestrator.taskdef(line.task) is None

    def test_a_registered_taskdef_reads_back(self, line: Line) -> None:
        wanted = line.taskdef(description="what it does", retryCount=2, responseTimeoutSeconds=17)
        line.orchestrator.register_taskdefs([wanted])
        found = line.orchestrator.taskdef(line.task)
        assert found is not None
        assert {key: found[key] for key in wanted} == wanted

    def test_a_taskdef_can_be_updated(self, line: Line) -> None:
        line.orchestrator.register_taskdefs([line.taskdef(retryCount=1)])
        line.orchestrator.register_taskdefs([line.taskdef(retryCount=5)])
        found = line.orchestrator.taskdef(line.task)
        assert found is not None
        assert found["retryCount"] == 5

    def test_a_workflow_definition_can_be_updated(self, line: Line) -> None:
        line.define([line.step("before")])
        line.define([line.step("after")])
        line.start()
        assert line.take_one().attempt.reference_task_name == "after"

    def test_a_workflow_definition_that_is_not_there_is_none(self, line: Line) -> None:
        assert line.orchestrator.workflow_definition(line.workflow) is None
        line.define([line.step("only")])
        assert line.orchestrator.workflow_definition(line.workflow, 2) is None

    def test_a_registered_workflow_definition_reads_back(self, line: Line) -> None:
        steps = [line.step("only", {"given": "${workflow.input.n}", "none": None}, optional=True)]
        line.define(steps, outputParameters={"end": "${only.output}"}, description="what it does")
        found = line.orchestrator.workflow_definition(line.workflow)
        assert found is not None
        assert (found["name"], found["version"], found["description"]) == (line.workflow, 1, "what it does")
        assert found["outputParameters"] == {"end": "${only.output}"}
        [step] = found["tasks"]
        assert {key: step[key] for key in steps[0]} == steps[0]

    def test_the_newest_version_of_a_workflow_is_meant_where_none_is_said(self, line: Line) -> None:
        for version in (10, 2):
            line.define([line.step(f"of_{version}")], version=version)
        read = line.orchestrator.workflow_definition
        newest, asked = read(line.workflow), read(line.workflow, 2)
        assert newest is not None
        assert asked is not None
        assert (newest["version"], asked["version"]) == (10, 2)
        assert asked["tasks"][0]["taskReferenceName"] == "of_2"
        assert line.orchestrator.workflow_versions()[line.workflow] == [2, 10]

    def test_starting_an_unknown_workflow_is_not_found(self, line: Line) -> None:
        with pytest.raises(OrchestratorNotFound):
            line.start()

    def test_an_unknown_workflow_is_not_found(self, orchestrator: Orchestrator) -> None:
        with pytest.raises(OrchestratorNotFound):
            orchestrator.workflow("00000000-0000-0000-0000-000000000000")


class TestWorkflows:
    def test_inputs_and_outputs_flow_from_step_to_step(self, line: Line) -> None:
        steps = [
            line.step("make", {"size": "${workflow.input.size}", "run": "${workflow.workflowId}"}),
            line.step(
                "use",
                {
                    "first": "${make.output.rows[0]}",
                    "said": "size ${make.input.size}, ${make.output.none}",
                    "nothing": "${make.output.none}",
                    "deep": {"all": ["${make.output}"]},
                },
            ),
        ]
        line.define(steps, outputParameters={"end": "${use.output.total}", "size": "${workflow.input.size}"})
        workflow_id = line.start(size=3)
        assert line.work("make", rows=[{"a": 1}, 2]).input == {"size": 3, "run": workflow_id}
        assert line.work("use", total=1.5).input == {
            "first": {"a": 1},
            "said": "size 3, null",
            "nothing": None,
            "deep": {"all": [{"rows": [{"a": 1}, 2]}]},
        }
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert state.output == {"end": 1.5, "size": 3}

    @pytest.mark.parametrize(("kind", "taken"), [("a", ["in_a", "in_a_too"]), ("other", ["in_default"])])
    def test_a_switch_takes_one_case(self, line: Line, kind: str, taken: list[str]) -> None:
        switch = {
            "name": "switch",
            "taskReferenceName": "which",
            "type": "SWITCH",
            "evaluatorType": "value-param",
            "expression": "kind",
            "inputParameters": {"kind": "${workflow.input.kind}"},
            "decisionCases": {"a": [line.step("in_a"), line.step("in_a_too")], "b": [line.step("in_b")]},
            "defaultCase": [line.step("in_default")],
        }
        line.define([switch, line.step("after", {"chosen": "${which.output.selectedCase}"})])
        workflow_id = line.start(kind=kind)
        for reference in taken:
            line.work(reference)
        assert line.work("after").input == {"chosen": kind}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert [task.reference for task in state.tasks] == ["which", *taken, "after"]
        which = state.tasks[0]
        assert (which.task_type, which.status) == ("SWITCH", "COMPLETED")
        assert which.output == {"evaluationResult": [kind], "selectedCase": kind}

    def test_a_fork_runs_its_branches_side_by_side_and_the_join_has_their_outputs(self, line: Line) -> None:
        line.define([*_fork(line), line.step("after", {"joined": "${join.output}"})])
        workflow_id = line.start()
        both = line.take(2)
        assert {one.attempt.reference_task_name for one in both} == {"left", "right"}
        for one in both:
            assert line.send(one, by=one.attempt.reference_task_name)
        line.work("right_too", by="right_too")
        after = line.work("after")
        assert after.input == {"joined": {"left": {"by": "left"}, "right_too": {"by": "right_too"}}}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert {task.status for task in state.tasks} == {"COMPLETED"}
        assert by_reference(state)["join"].input == {"joinOn": ["left", "right_too"]}

    def test_a_failure_in_one_branch_cancels_the_others(self, line: Line) -> None:
        line.define([*_fork(line), line.step("after")])
        workflow_id = line.start()
        branches = {one.attempt.reference_task_name: one for one in line.take(2)}
        line.send(branches["right"], "FAILED_WITH_TERMINAL_ERROR", reason="the right one broke")
        state = line.end_of(workflow_id)
        assert state.status == "FAILED"
        assert "the right one broke" in str(state.reason)

        def canceled(state: WorkflowState) -> bool:
            tasks = by_reference(state)
            return (tasks["left"].status, tasks["join"].status) == ("CANCELED", "CANCELED")

        # A busy Conductor ends the workflow first and its tasks a little later.
        line.until(workflow_id, canceled)
        assert not line.send(branches["left"])

    def test_a_loop_numbers_its_iterations_and_keeps_their_outputs(self, line: Line) -> None:
        loop = {
            "name": "loop",
            "taskReferenceName": "loop",
            "type": "DO_WHILE",
            "inputParameters": {"times": "${workflow.input.times}"},
            "loopCondition": "if ($.loop['iteration'] < $.times) { true; } else { false; }",
            "loopOver": [line.step("one", {"before": "${two.output.n}"}), line.step("two")],
        }
        line.define([loop, line.step("after", {"last": "${one.output.n}"})])
        workflow_id = line.start(times=2)
        first = line.work("one__1", n=1)
        assert first.attempt.iteration == 1
        assert first.input == {"before": None}
        line.work("two__1", n=10)
        assert line.work("one__2", n=2).input == {"before": 10}
        line.work("two__2", n=20)
        assert line.work("after").input == {"last": 2}
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        found = by_reference(state)["loop"]
        assert (found.task_type, found.status, found.iteration) == ("DO_WHILE", "COMPLETED", 2)
        assert found.output == {
            "iteration": 2,
            "1": {"one": {"n": 1}, "two": {"n": 10}},
            "2": {"one": {"n": 2}, "two": {"n": 20}},
        }


class TestGoingOn:
    def test_a_failed_workflow_goes_on_from_the_failed_step_whatever_its_retries(self, line: Line) -> None:
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
    def test_it_can_fail_again_and_go_on_again(self, line: Line, status: str) -> None:
        workflow_id = line.begin(taskdef={"retryCount": 0})
        for retry_count in range(2):
            assignment = line.take_one()
            assert assignment.attempt.retry_count == retry_count
            line.send(assignment, status, reason="no")
            assert line.end_of(workflow_id).status == "FAILED"
            line.orchestrator.retry_workflow(workflow_id)
        line.work("only")
        assert line.end_of(workflow_id).status == "COMPLETED"

    def test_of_a_fork_what_was_canceled_goes_on_too_and_what_was_done_stays_done(self, line: Line) -> None:
        line.define(
            [*_fork(line), line.step("after", {"joined": "${join.output}"})], taskdef={"retryCount": 0}
        )
        workflow_id = line.start()
        branches = {one.attempt.reference_task_name: one for one in line.take(2)}
        assert line.send(branches["left"], by="left")
        assert line.send(branches["right"], by="right")
        line.send(line.take_one(), "FAILED", reason="broken")
        line.end_of(workflow_id)
        # Conductor's JOIN may see the failure first.
        line.until(workflow_id, lambda state: by_reference(state)["join"].status in {"CANCELED", "FAILED"})

        line.orchestrator.retry_workflow(workflow_id)

        assert line.work("right_too", by="right_too").attempt.retry_count == 1
        assert line.work("after").input == {
            "joined": {"left": {"by": "left"}, "right_too": {"by": "right_too"}}
        }
        state = line.end_of(workflow_id)
        assert state.status == "COMPLETED"
        assert [task.reference for task in state.tasks].count("left") == 1

    def test_of_a_fork_both_branches_go_on_where_both_were_open(self, line: Line) -> None:
        line.define([*_fork(line)], taskdef={"retryCount": 0})
        workflow_id = line.start()
        branches = {one.attempt.reference_task_name: one for one in line.take(2)}
        line.send(branches["right"], "FAILED", reason="broken")
        line.end_of(workflow_id)
        line.until(
            workflow_id,
            lambda state: {by_reference(state)[name].status for name in ("left", "join")} == {"CANCELED"},
        )

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

    def test_a_loop_goes_on_in_its_iteration(self, line: Line) -> None:
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

    def test_a_case_of_a_switch_goes_on(self, line: Line) -> None:
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

    def test_a_workflow_that_is_out_of_time_goes_on_with_all_of_its_time_again(self, line: Line) -> None:
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

    def test_a_workflow_that_runs_or_is_done_or_is_not_there_does_not_go_on(self, line: Line) -> None:
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


class TestLogs:
    def test_log_lines_read_back_in_order_also_when_the_task_is_over(self, line: Line) -> None:
        workflow_id = line.begin()
        assignment = line.take_one()
        task_id = assignment.attempt.task_id
        before = time.time()
        line.orchestrator.log(assignment.attempt, ["first line", "second line: é", "", "[red]two\nthree"])
        line.orchestrator.log(assignment.attempt, ["last line"])
        assert line.send(assignment)
        assert line.end_of(workflow_id).status == "COMPLETED"
        expected = ["first line", "second line: é", "", "[red]two", "three", "last line"]
        found = line.until_log(task_id, len(expected))
        assert [one.text for one in found] == expected
        assert all(before - 5 < one.at < time.time() + 5 for one in found)

    def test_every_batch_of_lines_is_kept(self, line: Line) -> None:
        line.begin()
        attempt = line.take_one().attempt
        for number in range(30):
            line.orchestrator.log(attempt, [f"line {number}"])
        found = line.until_log(attempt.task_id, 30)
        assert [one.text for one in found] == [f"line {number}" for number in range(30)]

    def test_the_record_of_an_execution_comes_back_whole_after_much_else(self, line: Line) -> None:
        line.begin()
        attempt = line.take_one().attempt
        checks = [CheckRecord("post", f"check {number}", "é") for number in range(200)]
        record = record_line(AttemptRecord("one", "COMPLETED", checks=checks))
        assert len(record) > MOST_BYTES - 90
        printed = [f"{number} " + "y" * 1900 for number in range(40)]
        line.orchestrator.log(attempt, [*printed, record])
        assert [one.text for one in line.until_log(attempt.task_id, 41)] == [*printed, record]

    def test_a_task_that_nobody_knows_has_no_log(self, line: Line) -> None:
        assert line.orchestrator.task_log("no-such-task") == []


class TestLooking:
    def test_a_workflow_says_what_it_is_and_when_and_its_tasks_who_ran_them_and_when(
        self, line: Line
    ) -> None:
        before = time.time() - 5
        workflow_id = line.begin(answer=42)
        waiting = line.orchestrator.workflow(workflow_id)
        assert (waiting.name, waiting.input, waiting.ended) == (line.workflow, {"answer": 42}, None)
        (task,) = waiting.tasks
        assert (task.started, task.ended, task.worker) == (None, None, None)
        line.work("only")
        state = line.end_of(workflow_id)
        (task,) = state.tasks
        assert task.worker == WORKER
        moments = [before, state.started, task.scheduled, task.started, task.ended, state.ended]
        assert None not in moments
        assert moments == sorted(moments)  # type: ignore[type-var]

    def test_the_newest_workflows_come_first_with_how_they_ended(self, line: Line) -> None:
        first = line.begin(taskdef={"retryCount": 0})
        failing = line.take_one()
        time.sleep(0.01)
        second = line.start()
        assert line.send(failing, "FAILED", reason="on purpose")
        line.end_of(first)

        def own() -> list[WorkflowSummary]:
            found = line.orchestrator.workflows(1000)
            return [one for one in found if one.name == line.workflow]

        # The server's index is written a little later than the workflow.
        line.wait_until(
            lambda: [(one.id, one.status) for one in own()] == [(second, "RUNNING"), (first, "FAILED")]
        )
        newest, oldest = own()
        assert newest.ended is None
        assert "on purpose" in (oldest.reason or "")
        assert (oldest.started or 0) < (newest.started or 0)
        assert (oldest.started or 0) <= (oldest.ended or 0)
        assert len(line.orchestrator.workflows(1)) == 1


def _fork(line: Line) -> list[dict[str, object]]:
    fork: dict[str, object] = {
        "name": "fork",
        "taskReferenceName": "fork",
        "type": "FORK_JOIN",
        "forkTasks": [[line.step("left")], [line.step("right"), line.step("right_too")]],
    }
    join: dict[str, object] = {
        "name": "join",
        "taskReferenceName": "join",
        "type": "JOIN",
        "joinOn": ["left", "right_too"],
    }
    return [fork, join]
