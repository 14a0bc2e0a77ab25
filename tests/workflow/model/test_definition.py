"""The tree of a workflow: its blocks, the positions of its steps, and what is said about parts that cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from perago.workflow.model.definition import Problem, read_workflow
from tests.support.tasks.workflows import fork, join, loop, noop, simple, switch, workflow

FLOW = workflow(
    simple("first"),
    switch("s", decisionCases={"x": [simple("x1"), simple("x2")], "y": []}, defaultCase=[simple("d")]),
    fork("f", [simple("left")], [loop("l", simple("b1"), simple("b2"))]),
    join("j", "left", "l"),
)


def references(steps: Any) -> list[str]:
    return [step.reference for step in steps]


def test_every_list_of_steps_is_a_block_of_its_kind() -> None:
    steps = read_workflow(FLOW).steps

    assert {
        reference: [(block.kind, block.name, references(block.steps)) for block in step.blocks]
        for reference, step in steps.items()
        if step.blocks
    } == {
        "s": [("case", "x", ["x1", "x2"]), ("case", "y", []), ("default", "", ["d"])],
        "f": [("arm", "0", ["left"]), ("arm", "1", ["l"])],
        "l": [("body", "", ["b1", "b2"])],
    }


def test_steps_are_walked_in_the_order_of_the_file() -> None:
    found = references(read_workflow(FLOW).walk())

    assert found == ["first", "s", "x1", "x2", "d", "f", "left", "l", "b1", "b2", "j"]


@pytest.mark.parametrize(
    ("value", "steps"), [("x", ["x1", "x2"]), ("y", []), ("z", ["d"]), ("defaultCase", ["d"])]
)
def test_a_switch_takes_the_case_of_its_value_or_else_the_default(value: str, steps: list[str]) -> None:
    assert references(read_workflow(FLOW).steps["s"].case(value)) == steps


def test_a_case_named_like_the_default_one_is_an_ordinary_case() -> None:
    step = read_workflow(workflow(switch("s", decisionCases={"defaultCase": [simple("a")]}))).steps["s"]

    assert references(step.case("defaultCase")) == ["a"]
    assert step.case("x") == ()


@pytest.mark.parametrize(
    ("reference", "holders", "before"),
    [
        ("first", [], []),
        ("x2", ["s"], ["first", "s", "x1"]),
        ("b2", ["l", "f"], ["b1", "d", "f", "first", "l", "s", "x1", "x2"]),
        ("j", [], ["b1", "b2", "d", "f", "first", "l", "left", "s", "x1", "x2"]),
    ],
)
def test_a_step_knows_what_holds_it_and_what_comes_before_it(
    reference: str, holders: list[str], before: list[str]
) -> None:
    definition = read_workflow(FLOW)

    assert references(definition.holders(reference)) == holders
    assert sorted(definition.before(reference)) == before


def test_the_first_of_several_steps_with_one_reference_is_found_by_it() -> None:
    definition = read_workflow(workflow(simple("a", name="one"), loop("l", simple("a", name="two"))))

    assert definition.steps["a"].name == "one"
    assert definition.twins == ["a"]
    assert [step.name for step in definition.walk()] == ["one", "loop", "two"]


UNNAMED = {"type": "DO_WHILE", "loopOver": [simple("inner")]}


@pytest.mark.parametrize(
    ("tasks", "problems", "kept", "named"),
    [
        (["x", simple("a")], [Problem(None, "step 1 must be an object, not str")], ["a"], ["a"]),
        ([UNNAMED], [Problem(None, "step 1 has no taskReferenceName")], ["", "inner"], []),
        (
            [{"taskReferenceName": "a"}],
            [Problem("a", "step 'a' has no \"name\", which names its task")],
            ["a"],
            [],
        ),
        (
            [loop("l") | {"loopOver": "x"}],
            [Problem("l", "step 'l' holds steps that are not a list")],
            ["l"],
            ["l"],
        ),
        (
            [simple("a", inputParameters=[1], joinOn="b")],
            [
                Problem("a", "step 'a': inputParameters must be an object, not list"),
                Problem("a", "step 'a': \"joinOn\" must be a list of steps, not str"),
            ],
            ["a"],
            ["a"],
        ),
        ("x", [], [], []),
    ],
)
def test_a_part_that_cannot_be_read_is_named_and_the_rest_is_read(
    tasks: Any, problems: list[Problem], kept: list[str], named: list[str]
) -> None:
    definition = read_workflow({"tasks": tasks})

    assert list(definition.problems) == problems
    assert references(definition.walk()) == kept
    assert references(read_workflow({"tasks": tasks}, named_only=True).walk()) == named


def test_json_of_unknown_origin_is_read_to_a_depth() -> None:
    step = noop("inner")
    for number in range(400):
        step = loop(f"l{number}", step)

    assert references(read_workflow({"tasks": [step]}, deepest=3).walk()) == ["l399", "l398", "l397"]


@pytest.mark.parametrize(
    ("kind", "open_ended"), [("HTTP", False), ("FORK_JOIN_DYNAMIC", True), ("NEW", True)]
)
def test_a_type_that_adds_steps_leaves_the_workflow_open(kind: str, open_ended: bool) -> None:
    assert read_workflow(workflow(loop("l", simple("a", type=kind)))).open_ended is open_ended
