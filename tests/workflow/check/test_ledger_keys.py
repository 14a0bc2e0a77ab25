"""Two steps with one ledger key: which are refused, and which are not."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.workflow.check.check import check_workflow
from tests.support.tasks.workflows import simple, switch, workflow


class Params(BaseModel):
    source: str = "a"
    day: date | None = None
    limit: int = 10


class Made(BaseModel):
    rows: int = 0


def declare(name: str, **fields: Any) -> Any:
    skip = fields.pop("skip_unchanged", False)
    spec = WorkspaceSpec(**{"reads": ("raw",), "writes": ("out",), **fields})

    @task(name=name, owner_email="a@example.com", workspace=spec, skip_unchanged=skip)
    def run(workspace: Path, params: Params) -> Made:
        return Made()

    return run.__perago_task__


TASKS = {
    one.name: one
    for one in (
        declare("skips", skip_unchanged=True),
        declare("keyed", skip_unchanged=True, ledger_key=("source",)),
        declare("changes", changes_only=("raw",)),
        declare("plain"),
        declare("parts", skip_unchanged=True, reads=("raw/{source}",), writes=("out/{source}",)),
        declare("reads", writes=None, read_only=True),
    )
}
INPUT = "${workflow.input.workspace}"


def run(reference: str, name: str = "skips", workspace: str = INPUT, **params: Any) -> dict[str, Any]:
    given = workspace if workspace.startswith("$") else f"${{{workspace}.output.workspace}}"
    return simple(reference, name=name, inputParameters={"workspace": given, "params": params})


def choice(*cases: dict[str, Any]) -> dict[str, Any]:
    named = {str(number): [one] for number, one in enumerate(cases)}
    return switch("choice", inputParameters={"x": "${workflow.input.x}"}, decisionCases=named)


def errors(*steps: dict[str, Any]) -> list[str]:
    found = check_workflow(workflow(*steps), TASKS, file="")
    assert not [one for one in found if one.level == "warning"]
    return [one.message for one in found]


def refusal(name: str, param: str, key: str) -> list[str]:
    return [
        f"steps 'one' and 'two' run {name!r} on one branch with different params.{param}, and each would take the other's "
        f"publications for its own; name the param in WorkspaceSpec(ledger_key=({key}))"
    ]


REFUSED = {
    "two literals": (
        [run("one", source="a"), run("two", workspace="one", source="b")],
        ("skips", "source", '"source",'),
    ),
    "a literal and the default": (
        [run("one"), run("two", workspace="one", source="b")],
        ("skips", "source", '"source",'),
    ),
    "another param than the key": (
        [run("one", "keyed", source="a"), run("two", "keyed", "one", source="a", limit=5)],
        ("keyed", "limit", '"source", "limit"'),
    ),
    "a task that reads changes": (
        [run("one", "changes", source="a"), run("two", "changes", "one", source="b")],
        ("changes", "source", '"source",'),
    ),
    "two cases of a switch": (
        [choice(run("one", source="a"), run("two", source="b"))],
        ("skips", "source", '"source",'),
    ),
    "one partition twice": (
        [run("one", "parts", source="a", limit=1), run("two", "parts", "one", source="a", limit=2)],
        ("parts", "limit", '"limit",'),
    ),
    "a literal beside equal expressions": (
        [
            run("one", source="a", day="${workflow.input.day}"),
            run("two", workspace="one", source="b", day="${workflow.input.day}"),
        ],
        ("skips", "source", '"source",'),
    ),
}
ACCEPTED = {
    "equal params": [run("one", source="a"), run("two", workspace="one", source="a")],
    "equal params, spelled otherwise": [run("one"), run("two", workspace="one", source="a", limit=10)],
    "the key differs": [run("one", "keyed", source="a"), run("two", "keyed", "one", source="b", limit=5)],
    "an expression": [run("one", source="a"), run("two", workspace="one", source="${workflow.input.source}")],
    "an expression in the key": [
        run("one", "keyed", source="${workflow.input.a}", limit=1),
        run("two", "keyed", "one", source="a", limit=2),
    ],
    "params as a whole": [
        run("one", source="a"),
        {
            **run("two", workspace="one"),
            "inputParameters": {"workspace": "${one.output.workspace}", "params": "${workflow.input.params}"},
        },
    ],
    "a task without a ledger": [run("one", "plain", source="a"), run("two", "plain", "one", source="b")],
    "a task that only reads": [run("one", "reads", source="a"), run("two", "reads", source="b")],
    "two tasks": [run("one", source="a"), run("two", "keyed", "one", source="b")],
    "two partitions": [run("one", "parts", source="a"), run("two", "parts", "one", source="b", limit=5)],
    "perhaps two partitions": [
        run("one", "parts", source="${workflow.input.a}", limit=1),
        run("two", "parts", "one", source="${workflow.input.b}", limit=2),
    ],
    "two branches": [run("one", source="a"), run("two", workspace="${workflow.input.other}", source="b")],
}


@pytest.mark.parametrize(("steps", "expected"), REFUSED.values(), ids=REFUSED)
def test_two_steps_with_one_key_and_different_params_are_refused(
    steps: list[dict[str, Any]], expected: tuple[str, str, str]
) -> None:
    assert errors(*steps) == refusal(*expected)


@pytest.mark.parametrize("steps", ACCEPTED.values(), ids=ACCEPTED)
def test_what_may_have_another_key_or_equal_params_is_accepted(steps: list[dict[str, Any]]) -> None:
    assert errors(*steps) == []
