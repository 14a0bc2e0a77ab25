"""Values of a workflow that are unknown because the step `one` would run."""

from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.plan.unknown_values import UnknownValues
from perago.workflow.model.definition import WorkflowDefinition, read_workflow
from tests.support.tasks.workflows import fork, join, loop, simple, switch, workflow


def flow(value: Any = None) -> WorkflowDefinition:
    """Return a workflow in which the step `reader` takes a value."""
    return read_workflow(
        workflow(
            simple("one", name="work"),
            simple("two", name="work"),
            fork("fork", [simple("left", name="work")], [simple("right", name="work")]),
            join("joined", "left", "right"),
            loop("loop", simple("inner", name="work")),
            switch("choice", inputParameters={"x": "${one.output.result.case}"}),
            simple("reader", name="work", inputParameters={"params": value}),
        )
    )


def unknown(value: Any) -> str | None:
    """Return the cause of a value, if `one`, `left` and an iteration of `inner` run, and `two` is skipped."""
    definition = flow(value)
    found = UnknownValues(definition, lambda resolved: "planned" if "commit" in str(resolved) else None)
    for name in ("one", "two", "left", "inner"):
        found.add_result(definition.steps[name], name)
    for name in ("two", "inner"):
        found.remove_result(definition.steps[name])
    return found.cause_of(definition.steps["reader"], {"workspace": "commit", "params": value})


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("a literal", None),
        ("${workflow.input.x}", None),
        ("${nobody.output.result}", None),
        ("${one.output.result}", "one"),
        ("${one.output.result.rows[0]}", "one"),
        ({"deep": ["and", "in text: ${one.output.result.rows}"]}, "one"),
        ("${one.output}", "one"),
        ("${one}", "one"),
        ("${one.output.workspace}", None),
        ("${one.output.workspace.branch}", None),
        ("${one.status}", None),
        ("${one.input.params.x}", None),
        ("${two.output.result}", None),
        ("${joined.output.left.result}", "left"),
        ("${joined.output.left.workspace}", None),
        ("${joined.output.right.result}", None),
        ("${joined.output.left__2.result}", "left"),
        ("${joined.output}", "left"),
        ("${loop.output.iteration}", None),
        ("${loop.output['1'].inner.result}", "inner"),
        ("${loop.output['1'].inner.workspace}", None),
        ("${loop.output['1']}", "inner"),
        ("${loop.output}", "inner"),
        ("${inner.output.result}", None),
        ("${fork.output}", None),
        ("the commit of a step", "planned"),
    ],
)
def test_a_value_is_unknown_if_a_step_that_runs_makes_it(value: Any, cause: str | None) -> None:
    assert unknown(value) == cause


def task(reference: str, kind: str, **fields: Any) -> TaskState:
    return TaskState(reference, reference, kind, f"id of {reference}", "COMPLETED", 0, 0, 0, **fields)


def test_a_switch_on_an_unknown_value_makes_its_output_and_what_follows_unknown() -> None:
    definition = flow("${choice.output.selectedCase}")
    found = UnknownValues(definition, lambda _: None)
    found.add_result(definition.steps["one"], "one")
    assert found.cause_before("choice_a") is None

    found.observe(WorkflowState("id", "RUNNING", None, {}, [task("choice", "SWITCH")]))

    assert found.cause_before("choice_a") == found.cause_before("reader") == found.cause_of_flow == "one"
    assert found.cause_before("choice") is None
    assert found.cause_of(definition.steps["reader"], {}) == "one"


def test_the_input_of_a_step_is_unknown_to_those_who_read_it() -> None:
    definition = read_workflow(
        workflow(
            simple("one", name="work"),
            simple("two", name="work", inputParameters={"params": "${one.output.result}"}),
            simple("three", name="work", inputParameters={"params": "${two.input.params}"}),
        )
    )
    found = UnknownValues(definition, lambda _: None)
    found.add_result(definition.steps["one"], "one")

    assert found.cause_of(definition.steps["two"], {}) == "one"
    assert found.cause_of(definition.steps["three"], {}) == "one"
