"""The graph of a workflow, the times of an attempt and the lines of a history, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.lake.base import Commit
from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord
from perago.ui.graph import Node, graph_of
from perago.ui.history import HistoryRow, draw
from perago.ui.step_page import chosen_step, phases_of
from tests.support.tasks.workflows import noop


def task(
    reference: str, status: str = "COMPLETED", *, seq: int, retry: int = 0, iteration: int = 0
) -> TaskState:
    name = f"{reference}__{iteration}" if iteration else reference
    return TaskState(name, reference, "SIMPLE", f"id-{seq}", status, retry, iteration, seq)


def simple(reference: str) -> dict[str, object]:
    return {"name": "t", "taskReferenceName": reference, "type": "SIMPLE"}


def state(steps: object, *tasks: TaskState, status: str = "RUNNING") -> WorkflowState:
    return WorkflowState("w", status, None, {}, tasks, definition={"tasks": steps})


def of(nodes: list[Node], reference: str) -> Node:
    return next(node for node in nodes if node.reference == reference)


class TestGraph:
    def test_iterations_and_retries_are_folded_and_the_newest_attempt_counts(self) -> None:
        loop = {
            "name": "loop",
            "taskReferenceName": "loop",
            "type": "DO_WHILE",
            "loopOver": [simple("again")],
        }
        tasks = [
            task("again", seq=1, iteration=1),
            task("again", "FAILED", seq=2, iteration=2),
            task("again", "IN_PROGRESS", seq=3, retry=1, iteration=2),
        ]
        (node,) = graph_of(state([loop], *tasks))
        assert node.shape == "loop"
        (inner,) = node.lanes[0].nodes
        now = inner.standing
        assert (now.status, now.attempts, now.iterations) == ("IN_PROGRESS", 2, 2)

    def test_a_switch_has_a_lane_for_each_case(self) -> None:
        switch = {
            "name": "which",
            "taskReferenceName": "which",
            "type": "SWITCH",
            "decisionCases": {"a": [simple("one")], "b": [simple("two")]},
            "defaultCase": [simple("three")],
        }
        (node,) = graph_of(state([switch]))
        labels = [(lane.label, lane.nodes[0].reference) for lane in node.lanes]
        assert (node.shape, labels) == ("switch", [("a", "one"), ("b", "two"), ("otherwise", "three")])

    def test_the_noop_that_ends_an_arm_is_not_drawn(self) -> None:
        fork = {
            "taskReferenceName": "fork",
            "type": "FORK_JOIN",
            "forkTasks": [[simple("one"), noop("done")]],
        }
        came = replace(task("done", seq=2), task_type="NOOP")
        (node,) = graph_of(state([fork], task("one", seq=1), came))
        assert [inner.reference for inner in node.lanes[0].nodes] == ["one"]

    def test_steps_that_ran_without_a_definition_are_shown_too(self) -> None:
        nodes = graph_of(state([simple("known")], task("surprise", seq=1)))
        assert of(nodes, "known").standing.status == ""
        assert of(nodes, "surprise").standing.status == "COMPLETED"

    @pytest.mark.parametrize("steps", [None, "steps", [1, "x", {}], [{"forkTasks": None}], {"a": 1}])
    def test_a_definition_of_another_make_breaks_nothing(self, steps: object) -> None:
        assert isinstance(graph_of(state(steps)), list)

    def test_a_definition_that_is_nested_for_ever_has_an_end(self) -> None:
        deep: dict[str, object] = simple("inner")
        for number in range(200):
            deep = {"taskReferenceName": f"loop{number}", "type": "DO_WHILE", "loopOver": [deep]}
        assert len(graph_of(state([deep]))) == 1

    def test_the_step_that_people_want_to_see_comes_first(self) -> None:
        failed = [task("a", seq=1), task("b", "FAILED", seq=2), task("c", "CANCELED", seq=3)]
        assert chosen_step(state([], *failed, status="FAILED"), None) == "b"
        running = [task("a", seq=1), task("b", "IN_PROGRESS", seq=2), task("c", "SCHEDULED", seq=3)]
        assert chosen_step(state([], *running), None) == "b"
        assert chosen_step(state([], *running), "a") == "a"
        assert chosen_step(state([], *running), "nobody") == "b"
        assert chosen_step(state([]), None) is None


class TestPhases:
    def test_steps_are_gathered_into_what_people_call_them(self) -> None:
        seconds = {
            "input": 1.0,
            "workdir": 1.0,
            "download": 1.0,
            "pre checks": 1.0,
            "post checks": 1.0,
            "body": 3.0,
        }
        found = phases_of(AttemptRecord("x", "COMPLETED", seconds={**seconds, "claim": 1.0, "publish": 1.0}))
        assert [(one.name, one.seconds) for one in found] == [
            ("input", 1.0),
            ("download", 2.0),
            ("checks", 2.0),
            ("body", 3.0),
            ("publish", 2.0),
        ]
        assert found[-1].at + found[-1].width == 1000

    def test_an_attempt_without_a_record_has_none(self) -> None:
        assert phases_of(None) == []


class TestLanes:
    def row(self, name: str, **fields: object) -> HistoryRow:
        return replace(HistoryRow(Commit(name, (), ""), "publication"), **fields)  # type: ignore[arg-type]

    def kinds(self, rows: list[HistoryRow], *, more: bool = False) -> list[list[str]]:
        return [[line.kind for line in row.drawn.lines] for row in draw(rows, more=more)]

    def test_a_branch_is_one_line_from_its_head_to_its_first_commit(self) -> None:
        rows = [self.row("c"), self.row("b"), self.row("a")]
        drawn = draw(rows, more=False)
        assert [row.drawn.lines[0].path for row in drawn] == ["M9 50V100", "M9 0V100", "M9 0V50"]
        assert draw(rows, more=True)[-1].drawn.lines[0].path == "M9 0V100"

    def test_a_replaced_publication_stands_aside_and_leads_to_what_it_was_made_on(self) -> None:
        rows = [self.row("c"), self.row("lost", kind="replaced"), self.row("a")]
        assert self.kinds(rows) == [["branch"], ["branch", "replaced"], ["branch"]]
        assert [row.drawn.dot for row in draw(rows, more=False)] == [9, 27, 9]

    def test_a_commit_above_the_head_has_no_branch_beside_it(self) -> None:
        rows = [self.row("lost", kind="replaced"), self.row("a")]
        assert self.kinds(rows) == [["replaced"], []]

    def test_a_parallel_publication_leads_past_the_others_to_its_base(self) -> None:
        rows = [self.row("d", rebased_over=2, base="a"), self.row("c"), self.row("b"), self.row("a")]
        assert [kinds[1:] for kinds in self.kinds(rows)] == [["beside"]] * 4

    def test_a_base_on_another_page_is_led_to_until_the_end_of_this_one(self) -> None:
        rows = [self.row("d", rebased_over=5, base="elsewhere"), self.row("c")]
        assert [kinds[1:] for kinds in self.kinds(rows, more=True)] == [["beside"]] * 2

    def test_no_rows_draw_nothing(self) -> None:
        assert draw([], more=False) == []
