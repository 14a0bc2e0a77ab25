"""Definitions and workflows on every orchestrator.  No test here names a backend."""

from __future__ import annotations

import pytest

from perago.errors import OrchestratorNotFound
from perago.orchestrator.base import Orchestrator, WorkflowState
from tests.contract.orchestrators import Line, by_reference, fork


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
        line.define([*fork(line), line.step("after", {"joined": "${join.output}"})])
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
        # Ended by NOOPs: Conductor's JOIN fails by itself if it sees a canceled arm first.
        line.define([*fork(line, last={"type": "NOOP"}), line.step("after")])
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
