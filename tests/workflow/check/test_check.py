"""The check of workflows: each error is one line, and a valid workflow has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from perago.declare.discovery import load_tasks
from perago.workflow.check.check import check_workflow
from perago.workflow.model.definition import read_workflow
from perago.workflow.model.expressions import UNKNOWN, at, expressions_in, texts, whole
from tests.support.tasks.workflows import loop, simple, switch, workflow
from tests.workflow.check import diagnostics, reference_diagnostics
from tests.workflow.check.flows import INPUT, Json, after, look, make
from tests.workflow.check.tasks import TASKS
from tests.workflow.check.valid_workflows import RIGHT
from tests.workflow.check.warning_cases import WARNINGS

ERRORS = {**diagnostics.ERRORS, **reference_diagnostics.ERRORS}
ROOT = Path(__file__).parents[3]


def lines(definition: Json, **more: Any) -> list[str]:
    """Return the diagnostics of a workflow, as commands print them."""
    found = check_workflow(definition, TASKS, file="workflow.json", **more)
    return [f"{diagnostic.level}: {diagnostic}" for diagnostic in found]


@pytest.mark.parametrize(("definition", "line"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line(definition: Json, line: str) -> None:
    assert [said for said in lines(definition, elsewhere={"other"}) if said.startswith("error")] == [
        f"error: {line} (workflow.json)"
    ]


@pytest.mark.parametrize(("definition", "line"), WARNINGS.values(), ids=WARNINGS)
def test_an_error_on_some_paths_only_is_a_warning(definition: Json, line: str) -> None:
    said = lines(definition)

    assert f"warning: {line} (workflow.json)" in said
    assert not [line for line in said if line.startswith("error")]


@pytest.mark.parametrize("definition", RIGHT.values(), ids=RIGHT)
def test_a_workflow_that_works_is_not_complained_about(definition: Json) -> None:
    assert lines(definition) == []


def test_all_errors_are_reported_at_once() -> None:
    definition = workflow(
        make("one", "${workflow.inptu.workspace}", rows="x"),
        make("two", after("onne"), row=1),
        simple("three", name="x"),
    )

    assert len(lines(definition)) == 5


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything inside a value."""
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else [])
    ):
        yield (*path, key)
        yield from nodes(item, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a fork of looks, and one writer", "a loop", "the only case that goes on"])
@pytest.mark.parametrize("junk", [None, 1, "x", [1], {"a": [1]}], ids=repr)
def test_no_json_is_too_strange_to_be_checked(name: str, junk: Any) -> None:
    definition = RIGHT[name]
    for *around, last in nodes(definition):
        strange = deepcopy(definition)
        place: Any = strange
        for key in around:
            place = place[key]
        place[last] = junk

        lines(strange, given={"workspace": junk})


def test_without_a_module_the_check_says_to_give_one() -> None:
    found = check_workflow(workflow(look("one")), {}, file="flow.json")

    assert [str(diagnostic) for diagnostic in found] == [
        "step 'one' runs the task 'look', but no module was given; add the one that declares it (flow.json)"
    ]


def test_a_task_that_others_run_may_have_any_input_and_output() -> None:
    definition = workflow(
        simple("one", inputParameters={"x": 1}), make("two", after("one"), rows="${one.output.n.m}")
    )

    assert lines(definition, elsewhere={"work"}) == []


WHOLE = "--workspace REPO[@BRANCH] gives a whole one, as ${workflow.input.workspace}"
GIVEN = workflow(make("one", rows="${workflow.input.rows}", day="${workflow.input.day}"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workspace": UNKNOWN, "rows": 3}, []),
        (
            {"rows": 3},
            [
                "error: step 'one' takes ${workflow.input.workspace}, but the workflow's input has no 'workspace'; "
                "give --workspace REPO (workflow.json)"
            ],
        ),
        (
            {"workspace": UNKNOWN, "row": 3},
            [
                "error: step 'one' takes ${workflow.input.rows}, but the workflow's input has no 'rows', "
                "but 'row'; rename one of them (workflow.json)"
            ],
        ),
        (
            {"workspace": UNKNOWN, "rows": "3"},
            [
                "error: step 'one': params.rows takes ${workflow.input.rows}, which does not fit: Input should be a "
                "valid "
                "integer, got str (workflow.json)"
            ],
        ),
        (
            {"workspace": {"repository": "songs"}, "rows": 3},
            [
                f"error: step 'one': workspace.branch is missing; {WHOLE} (workflow.json)",
                f"error: step 'one': workspace.ref is missing; {WHOLE} (workflow.json)",
            ],
        ),
    ],
)
def test_an_input_that_is_given_is_checked_too(given: Json, said: list[str]) -> None:
    assert lines(GIVEN, given=given) == said


def test_the_template_of_a_workflow_fills_what_is_not_given() -> None:
    assert lines({**GIVEN, "inputTemplate": {"rows": 3}}, given={"workspace": UNKNOWN}) == []


def test_an_input_that_only_one_case_needs_may_be_missing() -> None:
    flow = workflow(
        switch(
            "s",
            inputParameters={"x": 1},
            decisionCases={"a": [make("one", INPUT, rows="${workflow.input.n}")]},
        )
    )

    [line] = lines(flow, given={"workspace": UNKNOWN})

    assert line.startswith(
        "warning: step 'one' takes ${workflow.input.n}, but the workflow's input has no 'n'; give it with --input"
    )


def test_a_chain_of_hundreds_of_steps_is_followed_to_its_end() -> None:
    steps = [make("s0"), *(make(f"s{n}", after(f"s{n - 1}")) for n in range(1, 600))]

    assert lines(workflow(*steps)) == []
    [line] = lines(workflow(*steps, make("late", after("s0"))))
    assert "step 's599' has moved that branch on by then" in line


def test_loops_in_loops_take_no_longer_with_every_level() -> None:
    step = make("s")
    for level in range(40):
        step = loop(f"l{level}", step)

    [line] = lines(workflow(step))
    assert line.startswith("warning: step 's' writes the same branch in every iteration")


def test_a_case_that_is_called_like_the_default_one_does_not_always_run() -> None:
    flow = workflow(switch("s", decisionCases={"defaultCase": [make("a")]}), make("b"))

    [line] = lines(flow)
    assert line.startswith("warning: step 'b' starts from")


def test_a_value_nested_too_deeply_to_be_checked_is_not_refused() -> None:
    step = make("s")
    for level in range(600):
        step = loop(f"l{level}", step)

    assert lines(workflow(step)) == [
        "warning: the workflow is nested too deeply to be checked (workflow.json)"
    ]


@pytest.mark.parametrize("folder", ["plain", "listening"])
def test_the_workflows_of_the_examples_are_right(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(ROOT)
    tasks = {task.name: task for task in load_tasks([f"examples/{folder}/tasks.py"])}
    definition = json.loads((ROOT / "examples" / folder / "workflow.json").read_text())

    assert check_workflow(definition, tasks, file="workflow.json") == []


def documented() -> Iterator[tuple[str, Json]]:
    for file in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]:
        for block in re.findall(r"```json[^\n]*\n(.*?)```", file.read_text(), re.DOTALL):
            if '"taskReferenceName"' in block:
                yield file.name, json.loads(block)


@pytest.mark.parametrize(("file", "definition"), list(documented()))
def test_the_workflows_of_the_docs_are_right(file: str, definition: Json) -> None:
    names = {step.name for step in read_workflow(definition).walk()}

    assert check_workflow(definition, {}, file=file, elsewhere=names) == []


def recorded() -> list[Json]:
    text = (ROOT / "tests" / "orchestrator" / "conductor" / "cases.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("case", recorded(), ids=lambda case: case["name"])
def test_references_that_the_check_calls_null_were_null_on_conductor(case: Json) -> None:
    found = check_workflow(case["workflow"], {}, file="recorded", elsewhere={"@task"})
    steps = read_workflow(case["workflow"]).steps

    for diagnostic in (one for one in found if one.level == "error" and one.step is not None):
        step = steps[diagnostic.step or ""]
        for path, text in texts(step.inputs):
            if any(f"takes ${{{read}}}, but" in diagnostic.message for read in expressions_in(text)):
                values = [
                    at(task["input"], path)
                    for task in case["expected"]["tasks"]
                    if is_of(task, step.reference)
                ]
                assert all(value is None if whole(text) else "null" in value for value in values), diagnostic


def is_of(task: Json, reference: str) -> bool:
    return str(task["reference"]).split("__")[0] == reference
