"""`fork`: the JSON that it makes, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import definition_of
from perago.workflow import INPUT_WORKSPACE, Step, fork, new_workflow, step
from tests.workflow.test_builder import CleanParams, clean_plays


def a_step(name: str) -> Step[Any]:
    return step(clean_plays, name, workspace=INPUT_WORKSPACE, params=CleanParams())


def shape(tasks: list[dict[str, Any]]) -> list[Any]:
    made: list[Any] = []
    for one in tasks:
        made.append((one["type"], one["taskReferenceName"]))
        if one["type"] == "FORK_JOIN":
            made.append([shape(arm) for arm in one["forkTasks"]])
        if one["type"] == "JOIN":
            made.append(one["joinOn"])
    return made


def test_each_arm_ends_with_a_noop_and_the_join_waits_for_those() -> None:
    flow = new_workflow("flow", a_step("first"), fork("both", [a_step("a"), a_step("b")], [a_step("c")]))

    assert shape(definition_of(flow, "flow.py:flow")["tasks"]) == [
        ("SIMPLE", "first"),
        ("FORK_JOIN", "both"),
        [[("SIMPLE", "a"), ("SIMPLE", "b"), ("NOOP", "b_done")], [("SIMPLE", "c"), ("NOOP", "c_done")]],
        ("JOIN", "both_join"),
        ["b_done", "c_done"],
    ]


def test_a_fork_inside_an_arm_brings_its_join_along() -> None:
    inner = fork("inner", [a_step("a")], [a_step("b")])
    flow = new_workflow("flow", fork("outer", [inner], [a_step("c")]))

    assert shape(definition_of(flow, "flow.py:flow")["tasks"]) == [
        ("FORK_JOIN", "outer"),
        [
            [
                ("FORK_JOIN", "inner"),
                [[("SIMPLE", "a"), ("NOOP", "a_done")], [("SIMPLE", "b"), ("NOOP", "b_done")]],
                ("JOIN", "inner_join"),
                ["a_done", "b_done"],
                ("NOOP", "inner_done"),
            ],
            [("SIMPLE", "c"), ("NOOP", "c_done")],
        ],
        ("JOIN", "outer_join"),
        ["inner_done", "c_done"],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("",), "a fork needs a unique name"),
        ((7, [1]), "a fork needs a unique name"),
        (("both",), "one list of steps for each arm, and got ()"),
        (("both", []), "one list of steps for each arm, and got []"),
        (("both", ["clean"]), "one list of steps for each arm, and got ['clean']"),
    ],
)
def test_invalid_fork_arguments_are_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(TaskDefinitionError) as caught:
        fork(*arguments)

    assert said in str(caught.value)
    assert "test_fork.py" in str(caught.value)


def test_a_step_in_place_of_a_list_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(TaskDefinitionError, match=r'fork\("both", \[first\], \[second\]\)'):
        fork("both", a_step("a"))  # type: ignore[arg-type]
