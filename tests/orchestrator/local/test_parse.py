"""Workflow JSON: what is refused, by name and all at once, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.parse import read_workflow
from perago.orchestrator.local.step_handlers import HANDLERS
from tests.support.tasks.workflows import fork, join, loop, simple, switch, workflow


def refusal(source: dict[str, Any]) -> str:
    with pytest.raises(OrchestratorRefused) as caught:
        read_workflow(source)
    return str(caught.value)


def test_every_unsupported_type_is_listed_with_its_reference_wherever_it_stands() -> None:
    text = refusal(
        workflow(
            simple("fine"),
            {"name": "x", "taskReferenceName": "set", "type": "SET_VARIABLE"},
            switch("sw", defaultCase=[{"name": "x", "taskReferenceName": "stop", "type": "TERMINATE"}]),
            fork("f", [{"name": "x", "taskReferenceName": "sub", "type": "SUB_WORKFLOW"}]),
            join("j", "sub"),
            loop("l", {"name": "x", "taskReferenceName": "calc", "type": "INLINE"}),
            failureWorkflow="clean_up",
        )
    )
    for part in (
        "'set' has the type SET_VARIABLE",
        "'stop' has the type TERMINATE",
        "'sub' has the type SUB_WORKFLOW",
        "'calc' has the type INLINE",
        "failureWorkflow 'clean_up'",
        "it runs SIMPLE, SWITCH, FORK_JOIN, JOIN, DO_WHILE, NOOP",
    ):
        assert part in text
    assert "'fine'" not in text


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (workflow(loop("l", simple("a"), loop("inner", simple("b")))), "'inner' is a DO_WHILE inside"),
        (
            workflow(loop("l", switch("s", decisionCases={"a": [loop("deep", simple("b"))]}))),
            "'deep' is a DO_W",
        ),
        (workflow(loop("l", simple("a"), loopCondition="items.every(x => x)")), "'l' has a loopCondition"),
        (workflow(loop("l", simple("a"), loopCondition=None)), "'l' has a loopCondition"),
        (workflow(loop("l", simple("a"), items="${workflow.input.items}")), "'l' uses items"),
        (workflow(loop("l", simple("a"), inputParameters={"keepLastN": 2})), "keepLastN"),
        (workflow(switch("s", evaluatorType="javascript", expression="f()")), "'s' has a expression"),
        (workflow(switch("s", evaluatorType="python")), "'s' has the evaluatorType 'python'"),
        (workflow(simple("a", permissive=True)), "'a' is permissive"),
        (workflow(simple("a", taskDefinition={"name": "work"})), "'a' brings its own taskDefinition"),
        (workflow(simple("a"), schemaVersion=1), "schemaVersion 1"),
        (workflow(simple("a"), timeoutPolicy="RETRY"), "timeoutPolicy 'RETRY'"),
    ],
)
def test_a_form_that_cannot_run_here_is_refused(source: dict[str, Any], what: str) -> None:
    text = refusal(source)
    assert what in text
    assert "cannot run on the embedded orchestrator" in text


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (workflow(), "it has no tasks"),
        (workflow(simple("a"), simple("a")), "the reference 'a' is used 2 times"),
        (workflow(simple("a"), switch("s", decisionCases={"x": [simple("a")]})), "'a' is used 2 times"),
        (workflow(switch("s", decisionCases={})), "'s' has no decisionCases"),
        (workflow(switch("s", expression=None)), "'s' has no expression"),
        (workflow(fork("f", [simple("a")])), "'f' is not followed by a JOIN"),
        (workflow(fork("f", [simple("a")]), simple("b")), "'f' is not followed by a JOIN"),
        (workflow(fork("f"), join("j")), "at least one task in each"),
        (workflow(fork("f", []), join("j")), "at least one task in each"),
        (workflow(fork("f", [simple("a")]), join("j", "a", "nobody")), "joins on 'nobody'"),
        (workflow(loop("l")), "'l' has nothing in loopOver"),
        (workflow(loop("l", simple("a__b"))), "which marks iterations"),
        (workflow(simple("a", inputParameters={"x": "${b.output.x}"})), "reads from 'b'"),
        (workflow(simple("a", inputParameters={"x": "${workflow.input[*]}"})), "is not a supported path"),
        (workflow(simple("a"), outputParameters={"x": "${a.output..y}"}), "outputParameters: ${a.output..y}"),
        (workflow({"name": "work", "type": "SIMPLE"}), "taskReferenceName"),
        (workflow(simple("a", retryCount="many")), "ValueError"),
        ({"tasks": [simple("a")]}, "needs a name"),
        ({"name": "flow"}, "KeyError: 'tasks'"),
        (workflow(*["a"]), "step 1 must be an object, not str"),
        (workflow(simple("a", inputParameters=[1])), "inputParameters must be an object, not list"),
        (workflow(switch("s", decisionCases={"x": "a"})), "'s' holds steps that are not a list"),
        (workflow(fork("f", [fork("f", [simple("a")])]), join("j")), "the reference 'f' is used 2 times"),
    ],
)
def test_a_definition_that_is_wrong_is_refused(source: dict[str, Any], what: str) -> None:
    assert what in refusal(source)


def test_an_unknown_task_in_the_outputs_reads_as_nothing_and_is_accepted() -> None:
    assert read_workflow(workflow(simple("a"), outputParameters={"x": "${b.output.x}"})).name == "flow"


def test_fields_for_people_and_listeners_are_passed_over() -> None:
    source = workflow(
        simple("a", description="words", onStateChange={}, taskDefinition=None, asyncComplete=False),
        description="words",
        ownerEmail="o@example.com",
        restartable=True,
        workflowStatusListenerEnabled=False,
        inputParameters=["x"],
    )
    definition = read_workflow(source)
    assert [step.reference for step in definition.walk()] == ["a"]


def test_steps_after_a_step_are_found_across_its_blocks() -> None:
    definition = read_workflow(
        workflow(
            simple("first"),
            switch("s", decisionCases={"x": [simple("x1"), simple("x2")]}, defaultCase=[simple("d")]),
            fork("f", [simple("l1"), simple("l2")], [switch("s2", decisionCases={"y": [simple("y")]})]),
            join("j", "l2"),
            loop("l", simple("b1"), switch("s3", decisionCases={"z": [simple("z")]})),
            simple("last"),
        )
    )
    following = {
        step.reference: getattr(definition.next_after(step.reference), "reference", None)
        for step in definition.walk()
    }
    assert following == {
        "first": "s",
        "s": "f",
        "x1": "x2",
        "x2": "f",
        "d": "f",
        "f": "j",
        "l1": "l2",
        "l2": "j",
        "s2": "j",
        "y": "j",
        "j": "l",
        "l": "last",
        "b1": "s3",
        "s3": None,
        "z": None,
        "last": None,
    }


def test_the_docs_name_every_supported_type() -> None:
    page = Path(__file__).parents[3] / "docs" / "embedded-orchestrator.md"
    row = next(
        line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| task types")
    )
    supported = row.split("|")[2]
    assert [name.strip(" `") for name in supported.split(",")] == list(HANDLERS)
