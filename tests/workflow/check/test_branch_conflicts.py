"""Forks whose arms write one branch, and the steps that join what they have published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task
from perago.declare.task import TaskDefinition
from perago.workflow.check.check import check_workflow
from tests.support.tasks.workflows import fork, join, noop, simple, workflow
from tests.workflow.check.flows import INPUT, Json, after


class Nothing(BaseModel):
    pass


def made(name: str, retries: int = 0, **spec: Any) -> TaskDefinition:
    controls = TaskControls(retry=RetryPolicy(count=retries))

    @task(name=name, owner_email="tests@example.com", controls=controls, workspace=WorkspaceSpec(**spec))
    def run(workspace: Path, params: Nothing) -> Nothing:
        return params

    return run.__perago_task__  # type: ignore[no-any-return]


BESIDE = {"on_abandoned": "supersede", "on_advanced": "rebase"}
TASKS = {
    one.name: one
    for one in (
        made("left", reads=("in",), writes=("left",), **BESIDE),
        made("right", reads=("in",), writes=("right",), **BESIDE),
        made("nosy", reads=("left",), writes=("nosy",), **BESIDE),
        made("strict", reads=("in",), writes=("strict",)),
        made("whole"),
        made("look", read_only=True),
        made("stubborn", retries=1, read_only=True),
    )
}


def a_step(name: str, workspace: Any = INPUT, reference: str | None = None) -> Json:
    return simple(reference or name, name=name, inputParameters={"workspace": workspace, "params": {}})


def said(*steps: Json) -> list[str]:
    found = check_workflow(workflow(*steps), TASKS, file="w.json")
    return [f"{one.level}: {one.message}" for one in found]


def a_fork(left: str, right: str) -> tuple[Json, Json]:
    return fork("fork", [a_step(left)], [a_step(right)]), join("join", left, right)


def test_writers_that_see_nothing_of_each_other_may_run_side_by_side_and_be_joined() -> None:
    both = [after("left"), after("right")]
    for last in ("whole", "look"):
        assert said(*a_fork("left", "right"), a_step(last, both)) == []


@pytest.mark.parametrize(("left", "right"), [("left", "nosy"), ("left", "strict"), ("left", "whole")])
def test_arms_that_conflict_are_errors_with_a_remedy(left: str, right: str) -> None:
    [line] = said(*a_fork(left, right))
    assert line.startswith(f"error: steps {left!r} and {right!r} run side by side")
    assert 'on_advanced="rebase"' in line


def test_a_step_that_starts_from_one_of_two_is_told_to_start_from_both() -> None:
    [line] = said(*a_fork("left", "right"), a_step("whole", after("left")))
    assert line.startswith(
        "warning: step 'whole' starts from ${left.output.workspace}, but step 'right' may have moved"
    )
    assert line.endswith('start it from both: ["${left.output.workspace}", "${right.output.workspace}"]')


def test_a_join_of_what_another_step_has_moved_past_is_old() -> None:
    both = [after("left"), after("right")]
    [line] = said(*a_fork("left", "right"), a_step("whole", both), a_step("whole", both, "again"))
    assert line.startswith(
        "error: step 'again' starts from ${left.output.workspace} and ${right.output.workspace}"
    )
    assert line.endswith("start it from ${whole.output.workspace}")


def test_a_join_with_an_older_one_is_fine() -> None:
    assert said(a_step("whole"), a_step("whole", [INPUT, after("whole")], "next")) == []


def test_an_empty_list_and_a_wrong_element_are_named() -> None:
    assert said(a_step("whole", [])) == [
        "error: step 'whole': workspace is an empty list; give it one workspace, or those that are to be joined"
    ]
    assert said(a_step("whole", [INPUT, 7])) == [
        "error: step 'whole': workspace[1] must be an object, not int"
    ]


def test_a_join_on_a_step_that_may_be_tried_again_is_told_what_conductor_does_with_it() -> None:
    stubborn = a_step("stubborn")
    assert said(*a_fork("stubborn", "look")) == [
        "warning: step 'join' joins on 'stubborn', which has retries: Conductor may see it fail before the retry is there, "
        "and fail the workflow; end that arm with a NOOP step, and join on that one"
    ]
    # A step that is not the last of its arm is not seen, and one that is optional does not fail the join.
    assert said(fork("fork", [stubborn, noop("done")], [a_step("look")]), join("join", "done", "look")) == []
    assert (
        said(
            fork("fork", [stubborn | {"optional": True}], [a_step("look")]), join("join", "stubborn", "look")
        )
        == []
    )


def test_a_workspace_from_an_arm_that_ends_with_a_noop_is_there_after_the_join() -> None:
    arms = fork("fork", [a_step("left"), noop("a_done")], [a_step("right"), noop("b_done")])
    assert said(arms, join("join", "a_done", "b_done"), a_step("look", [after("left"), after("right")])) == []
