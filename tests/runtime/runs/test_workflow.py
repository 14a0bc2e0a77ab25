"""Which tasks a workflow uses: those that it names, at any depth, or any where it names them only while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.runs.workflow import used_tasks

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
