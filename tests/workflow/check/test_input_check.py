"""A workflow's input against the tasks that it flows into: which lines it gives, and which of them refuse the start."""

from __future__ import annotations

from typing import Any

import pytest

from perago.workflow.check.input_check import check_input
from perago.workflow.model.requirements import task_names
from tests.support.tasks.workflows import fork, join, loop, simple, switch, workflow

PARAMS = {
    "type": "object",
    "properties": {
        "size": {"type": "integer"},
        "label": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "required": ["size"],
    "additionalProperties": False,
}
WORKSPACE = {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]}
TASKDEFS: dict[str, Any] = {
    "work": {
        "name": "work",
        "inputSchema": {
            "data": {
                "type": "object",
                "properties": {"params": PARAMS, "workspace": WORKSPACE},
                "additionalProperties": False,
            }
        },
    }
}


def step(reference: str = "one", **params: Any) -> dict[str, Any]:
    return simple(reference, inputParameters={"params": params})


def found(definition: dict[str, Any], **payload: Any) -> list[tuple[str, bool]]:
    return [(one.text, one.refused) for one in check_input(definition, TASKDEFS, payload)]


SIZE = "${workflow.input.size}"
LACKS = "step 'one': params.size is ${workflow.input.size}, but the input has no 'size'"


def test_an_input_that_fits_gives_nothing() -> None:
    flow = workflow(step(size=SIZE, label="${workflow.input.name}"), step("two", size="${one.output.n}"))

    assert found(flow, size=3, name=None) == []


def test_an_input_that_is_not_there_is_named_with_step_and_param() -> None:
    assert found(workflow(step(size=SIZE))) == [(f"{LACKS}: add 'size' to --input", True)]


def test_an_input_under_a_name_that_is_nearly_right_is_told_from_both_sides() -> None:
    assert found(workflow(step(size=SIZE)), siez=3) == [
        (f"{LACKS}: did you write 'siez' for it?", True),
        ("the workflow does not read the input 'siez'; did you mean 'size'?", False),
    ]


def test_a_workspace_that_is_not_there_is_asked_for_by_its_option() -> None:
    flow = workflow(simple("one", inputParameters={"workspace": "${workflow.input.workspace}"}))

    assert found(flow) == [
        (
            "step 'one': workspace is ${workflow.input.workspace}, but the input has no 'workspace': "
            "add --workspace REPO[@BRANCH]",
            True,
        )
    ]


@pytest.mark.parametrize(
    ("expression", "payload", "text"),
    [
        (SIZE, {"size": "3"}, f"params.size must be a whole number, but {SIZE} is a string"),
        (SIZE, {"size": None}, f"params.size must be a whole number, but {SIZE} is null"),
        (
            "${workflow.input.a.sizes[1]}",
            {"a": {"sizes": [1]}},
            "params.size is ${workflow.input.a.sizes[1]}, but the input has no 'a.sizes[1]': "
            "add 'a.sizes[1]' to --input",
        ),
        (
            "${workflow.input['my size']}",
            {"my size": []},
            "params.size must be a whole number, but ${workflow.input['my size']} is a list",
        ),
    ],
)
def test_a_value_of_a_wrong_kind_is_named_and_never_shown(
    expression: str, payload: dict[str, Any], text: str
) -> None:
    assert found(workflow(step(size=expression)), **payload) == [(f"step 'one': {text}", True)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "params.size is missing: ${workflow.input.params} has no 'size'"),
        (
            {"size": 1, "sice": 2},
            "params.sice is not declared by the task: take 'sice' out of ${workflow.input.params}",
        ),
        (
            {"size": "x"},
            "params.size must be a whole number, but size of ${workflow.input.params} is a string",
        ),
    ],
)
def test_params_passed_as_a_whole_are_checked_inside(given: dict[str, Any], text: str) -> None:
    flow = workflow(simple("one", inputParameters={"params": "${workflow.input.params}"}))

    assert found(flow, params=given) == [(f"step 'one': {text}", True)]


@pytest.mark.parametrize("size", ["three", "${other.output.size}", "at ${workflow.input.size}", "$${x}"])
def test_values_that_do_not_come_from_the_input_are_not_judged(size: str) -> None:
    assert found(workflow(step(size=size))) == []


def test_a_param_that_may_be_null_may_come_from_an_input_that_is_not_there() -> None:
    assert found(workflow(step(size=1, label="${workflow.input.name}"))) == []


def test_the_workflow_s_template_fills_an_input_that_is_not_empty() -> None:
    flow = workflow(step(size=SIZE), inputTemplate={"size": 1}, inputParameters=["about"])

    assert found(flow, about="x") == []
    assert found(flow) == [(f"{LACKS}: add 'size' to --input", True)]


def test_a_task_without_a_schema_takes_anything() -> None:
    assert check_input(workflow(step(size=SIZE)), {"work": None}, {}) == []
    assert check_input(workflow(step(size=SIZE)), {"work": {"name": "work"}}, {}) == []


def test_steps_in_forks_and_loops_certainly_run() -> None:
    flow = workflow(fork("f", [step(size=SIZE)], [loop("l", step("two", size=SIZE))]), join("j", "one", "l"))

    assert [refused for _, refused in found(flow)] == [True, True]


def test_a_switch_that_the_input_decides_is_followed_into_its_branch_only() -> None:
    cases = {
        "a": [step("in_a", size="${workflow.input.a}")],
        "true": [step("yes", size="${workflow.input.y}")],
    }
    flow = workflow(
        switch("s", inputParameters={"x": "${workflow.input.kind}"}, decisionCases=cases)
        | {"defaultCase": [step("other", size="${workflow.input.b}")]}
    )

    assert found(flow, kind="a", a=1) == []
    assert [text[:12] for text, _ in found(flow, kind="a")] == ["step 'in_a':"]
    assert [text[:11] for text, _ in found(flow, kind=True)] == ["step 'yes':"]
    assert [text[:13] for text, _ in found(flow, kind="z")] == ["step 'other':"]


def test_a_step_that_may_be_passed_by_only_warns() -> None:
    undecided = switch(
        "s", inputParameters={"x": "${first.output.x}"}, decisionCases={"a": [step(size=SIZE)]}
    )
    ended = {"name": "end", "taskReferenceName": "end", "type": "TERMINATE"}
    may_end = switch("s", inputParameters={"x": "${first.output.x}"}, decisionCases={"a": [ended]})

    for flow in (
        workflow(undecided),
        workflow(may_end, step(size=SIZE)),
        workflow({**step(size=SIZE), "optional": True}),
    ):
        assert found(flow) == [(f"{LACKS}: add 'size' to --input", False)]


def test_an_input_that_nothing_reads_is_told_once_unless_all_of_it_is_read() -> None:
    flow = workflow(step(size=SIZE), outputParameters={"all": "${workflow.input.a.b}"})

    assert found(flow, size=1, a=1, zzz=1) == [
        ("the workflow does not read the input 'zzz'; it reads a, size", False)
    ]
    assert found(workflow(step(size=SIZE), outputParameters={"all": "${workflow.input}"}), size=1, z=1) == []


def test_the_tasks_of_a_workflow_are_those_of_its_simple_steps() -> None:
    flow = workflow(fork("f", [simple("a")], [loop("l", {**simple("b"), "name": "other"})]), join("j", "a"))

    assert task_names(flow) == {"work", "other"}
