"""Which tasks a workflow uses: those that it names, at any depth, or any where it names them only while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import RuntimeConfigError
from perago.workflow.model.requirements import digest_of, side_by_side, used_tasks

KNOWN = {"a", "b", "c", "unused"}


def step(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "taskReferenceName": name, **fields}


def test_steps_in_forks_branches_and_loops_are_used() -> None:
    inner = step("b", type="SIMPLE")
    flow = [
        step("a"),
        step(
            "fork", type="FORK_JOIN", forkTasks=[[inner], [step("loop", type="DO_WHILE", loopOver=[inner])]]
        ),
        step("join", type="JOIN"),
        step("switch", type="SWITCH", decisionCases={"one": [step("c")]}, defaultCase=[inner]),
    ]

    assert used_tasks({"tasks": flow}, KNOWN) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "kind", ["DYNAMIC", "FORK_JOIN_DYNAMIC", "SUB_WORKFLOW", "START_WORKFLOW", "NEW_ONE"]
)
def test_a_step_that_may_bring_in_any_task_uses_all(kind: str) -> None:
    flow = [step("a"), step("loop", type="DO_WHILE", loopOver=[step("more", type=kind)])]

    assert used_tasks({"tasks": flow}, KNOWN) == KNOWN


@pytest.mark.parametrize("more", [[], [step("more", type="DYNAMIC")]])
def test_a_task_that_nobody_knows_is_named(more: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeConfigError, match="no --tasks module declares: unheard_of; declared are a, b"):
        used_tasks({"tasks": [step("unheard_of"), *more]}, {"a", "b"})


def test_a_workflow_of_system_steps_uses_none() -> None:
    assert used_tasks({"tasks": [step("wait", type="WAIT")]}, KNOWN) == set()


def fork(*branches: list[dict[str, Any]], join_on: list[str] | None = None) -> list[dict[str, Any]]:
    ends = [branch[-1]["taskReferenceName"] for branch in branches]
    return [
        step("fork", type="FORK_JOIN", forkTasks=list(branches)),
        step("join", type="JOIN", joinOn=ends if join_on is None else join_on),
    ]


WIDE = fork([step("a")], [step("b"), *fork([step("c")], [step("d")])], join_on=["a", "join"])


@pytest.mark.parametrize(
    ("tasks", "width"),
    [
        ([], 1),
        ([step("a")], 1),
        ([step("a"), step("b"), step("c")], 1),
        (fork([step("a")], [step("b"), step("c")]), 2),
        (WIDE, 3),
        ([step("before"), *WIDE, *fork([step("e")], [step("f")])], 3),
        ([step("loop", type="DO_WHILE", loopOver=fork([step("a")], [step("b")]))], 2),
        ([step("switch", type="SWITCH", decisionCases={"x": WIDE, "y": [step("a")]})], 3),
        ([step("switch", type="SWITCH", defaultCase=WIDE)], 3),
        # What follows such a JOIN runs beside the branch that it does not wait for.
        ([*fork([step("a")], [step("b")], join_on=["a"]), step("c")], None),
        ([step("fork", type="FORK_JOIN", forkTasks=[[step("a")]]), step("b")], None),
        ([step("a"), step("sub", type="SUB_WORKFLOW")], None),
        (["a", 3], None),
        ([step("some", type="FORK_JOIN_DYNAMIC"), step("join", type="JOIN")], None),
        (fork([step("a")], [step("more", type="DYNAMIC")]), None),
        ([step("switch", type="SWITCH", decisionCases={"x": [step("sub", type="SUB_WORKFLOW")]})], None),
    ],
)
def test_the_steps_that_can_run_side_by_side_are_counted(tasks: list[Any], width: int | None) -> None:
    assert side_by_side({"tasks": tasks}) == width


def test_a_definition_is_the_same_however_its_file_is_written() -> None:
    assert digest_of({"name": "flow", "version": 1}) == digest_of({"version": 1, "name": "flow"})
    assert digest_of({"name": "flow", "version": 1}) != digest_of({"name": "flow", "version": 2})
