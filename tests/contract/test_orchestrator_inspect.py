"""Inspecting workflows and their logs on every orchestrator.  No test here names a backend."""

from __future__ import annotations

import time

from perago.orchestrator.base import WorkflowSummary
from perago.protocol.attempt_record import MOST_BYTES, AttemptRecord, CheckRecord, record_line
from tests.contract.orchestrators import WORKER, Line


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


class TestInspect:
    def test_a_workflow_says_what_it_is_and_when_and_its_tasks_who_ran_them_and_when(
        self, line: Line
    ) -> None:
        before = time.time() - 5
        workflow_id = line.begin(answer=42)
        waiting = line.orchestrator.workflow(workflow_id)
        assert (waiting.name, waiting.input, waiting.ended) == (line.workflow, {"answer": 42}, None)
        assert [step["taskReferenceName"] for step in waiting.definition["tasks"]] == ["only"]
        (task,) = waiting.tasks
        assert (task.started, task.ended, task.worker) == (None, None, None)
        line.work("only")
        state = line.end_of(workflow_id)
        (task,) = state.tasks
        assert task.worker == WORKER
        moments = [before, state.started, task.scheduled, task.started, task.ended, state.ended]
        assert None not in moments
        assert moments == sorted(moments)  # type: ignore[type-var]

    def test_a_list_of_workflows_has_their_input_and_a_task_has_its_own(self, line: Line) -> None:
        given = {"workspace": {"repository": "songs", "ref": "abc"}, "text": "a, b=c"}
        workflow_id = line.begin(**given)

        def listed() -> list[WorkflowSummary]:
            return [one for one in line.orchestrator.workflows(1000) if one.id == workflow_id]

        # The server's index is written a little later than the workflow.
        line.wait_until(lambda: bool(listed()))
        assert listed()[0].input == given
        assert line.orchestrator.workflow(workflow_id).tasks[0].input == line.take_one().input

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

        def after_the_newest() -> list[str]:
            found = [one.id for one in line.orchestrator.workflows(1000)]
            return [one.id for one in line.orchestrator.workflows(1000, start=found.index(second) + 1)]

        # Others may start workflows between the two looks.
        line.wait_until(lambda: first in (rest := after_the_newest()) and second not in rest)
