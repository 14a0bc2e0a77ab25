"""Steps whose tasks name params in their paths, compared by the partitions that the workflow gives them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perago import RetryPolicy, TaskControls, WorkspaceSpec, require_file, task
from perago.declare.task import TaskDefinition
from perago.workflow.check.check import check_workflow
from tests.support.tasks.workflows import fork, join, simple, workflow
from tests.workflow.check.flows import INPUT, Json, cases, with_input


class Nothing(BaseModel):
    pass


class Slice(BaseModel):
    day: date
    region: str = "eu"
    note: str = "none"
    top: int = 3


class Shifted(BaseModel):
    day: str
    note: str = ""

    @field_validator("day")
    @classmethod
    def same(cls, value: str) -> str:
        return "always"


class Anything(Shifted):
    """A model with a validator for every field."""

    @field_validator("*")
    @classmethod
    def every(cls, value: str) -> str:
        return value


class Rewritten(BaseModel):
    day: str
    note: str = ""

    @model_validator(mode="after")
    def same(self) -> Self:
        self.day = "always"
        return self


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    day: str = Field(alias="Day", default="always")
    note: str = ""


def declared(name: str, model: type[BaseModel], **spec: Any) -> TaskDefinition:
    beside = {"on_abandoned": "supersede", "on_advanced": "rebase"}
    usual = {"reads": ("raw/day={day}",), "writes": ("clean/day={day}",)}

    @task(
        name=name,
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(**beside | usual | spec),
        controls=TaskControls(retry=RetryPolicy(count=0)),
    )
    def run(workspace: Path, params: model) -> Nothing:  # type: ignore[valid-type]
        return Nothing()

    return run.__perago_task__  # type: ignore[no-any-return]


TASKS = {
    one.name: one
    for one in (
        declared("daily", Slice, post=(require_file("clean/day={day}/{note}"),)),
        declared("regional", Slice, writes=("clean/{region}/{day}",)),
        declared("every", Slice, reads=("raw",), writes=("clean",)),
        declared("second", Slice, reads=(), writes=("clean/day=2026-01-02",)),
        declared("top", Slice, reads=(), writes=("{region}",)),
        declared("shifted", Shifted),
        declared("anything", Anything),
        declared("rewritten", Rewritten),
        declared("aliased", Aliased),
    )
}
ONE, TWO = "2026-01-01", "2026-01-02"
NOTE = "${workflow.input.note}"


def said(*steps: Json, **given: Any) -> list[str]:
    found = check_workflow(workflow(*steps), TASKS, given=given or None, file="w.json")
    return [f"{one.level}: {one.message}" for one in found]


def beside(one: tuple[str, Json], other: tuple[str, Json], **given: Any) -> bool:
    """Return whether two tasks with these params may run side by side."""
    arms = [
        [simple(reference, name=name, inputParameters={"workspace": INPUT, "params": params})]
        for reference, (name, params) in zip(("one", "other"), (one, other), strict=True)
    ]
    lines = said(fork("fork", *arms), join("join", "one", "other"), **given)
    assert all("run side by side" in line for line in lines), lines
    return not lines


@pytest.mark.parametrize(
    ("one", "other", "independent"),
    [
        (("daily", {"day": ONE}), ("daily", {"day": TWO}), True),
        (("daily", {"day": ONE}), ("daily", {"day": ONE}), False),
        (("daily", {"day": ONE, "note": NOTE}), ("daily", {"day": TWO, "note": NOTE}), True),
        (("daily", {"day": ONE, "note": NOTE}), ("daily", {"day": ONE, "note": NOTE}), False),
        (("daily", {"day": "${workflow.input.day}"}), ("daily", {"day": TWO}), False),
        (("daily", "${workflow.input.params}"), ("daily", {"day": TWO}), False),
        (("daily", {"day": ONE}), ("second", {"day": ONE}), True),
        (("daily", {"day": TWO}), ("second", {"day": ONE}), False),
        (("daily", {"day": ONE}), ("every", {"day": TWO}), False),
        (("daily", {"day": ONE}), ("regional", {"day": TWO}), True),
        (("daily", {"day": ONE}), ("top", {"day": ONE, "region": "us"}), True),
        (("daily", {"day": ONE}), ("top", {"day": ONE, "region": "clean"}), False),
        (("daily", {"day": ONE}), ("top", {"day": ONE, "region": NOTE}), False),
        # The default counts, as in an attempt.
        (("regional", {"day": ONE}), ("regional", {"day": ONE, "region": "us", "note": NOTE}), True),
        (("regional", {"day": ONE}), ("regional", {"day": ONE, "region": "eu", "note": NOTE}), False),
        # Read by the whole model, or not at all, where the model may change the value.
        (("shifted", {"day": ONE}), ("shifted", {"day": TWO}), False),
        (("shifted", {"day": ONE}), ("daily", {"day": TWO}), True),
        (("shifted", {"day": ONE, "note": NOTE}), ("daily", {"day": TWO}), False),
        (("anything", {"day": ONE, "note": NOTE}), ("daily", {"day": TWO}), False),
        (("rewritten", {"day": ONE, "note": NOTE}), ("daily", {"day": TWO}), False),
        (("aliased", {"Day": ONE, "note": NOTE}), ("daily", {"day": TWO}), False),
        (("aliased", {"Day": ONE}), ("daily", {"day": TWO}), True),
    ],
)
def test_arms_conflict_if_their_partitions_do(
    one: tuple[str, Json], other: tuple[str, Json], independent: bool
) -> None:
    assert beside(one, other) is independent
    assert beside(other, one) is independent


def test_a_given_input_fills_the_paths_too() -> None:
    one, other = ("daily", {"day": "${workflow.input.day}"}), ("daily", {"day": TWO})
    workspace = {"repository": "songs", "branch": "main", "ref": "3f1c"}

    assert beside(one, other, workspace=workspace, day=ONE)
    assert not beside(one, other, workspace=workspace, day=TWO)


def test_a_given_input_that_names_no_partition_is_an_error_where_the_step_always_runs() -> None:
    params = {"day": ONE, "region": "${workflow.input.region}"}
    step = with_input("cut", "regional", workspace=INPUT, params=params)
    given = {"workspace": {"repository": "songs", "branch": "main", "ref": "3f1c"}, "region": "", "x": "a"}

    assert [line.partition(":")[0] for line in said(step, **given)] == ["error"]
    assert [line.partition(":")[0] for line in said(cases(a=[step]), **given)] == ["warning"]


@pytest.mark.parametrize(
    ("region", "rule"),
    [
        ("", "it must not be empty"),
        ("_x", "it must not begin with '.' or '_'"),
        ("a}", "it must not hold '}'"),
    ],
)
@pytest.mark.parametrize("note", ["some", NOTE])
def test_a_literal_that_names_no_partition_is_an_error(region: str, rule: str, note: str) -> None:
    params = {"day": ONE, "region": region, "note": note}

    assert said(with_input("cut", "regional", workspace=INPUT, params=params)) == [
        f"error: step 'cut': params.region cannot fill 'clean/{{region}}/{{day}}': {rule}; send another value"
    ]


def test_params_that_do_not_fit_are_told_once() -> None:
    [line] = said(with_input("cut", "regional", workspace=INPUT, params={"day": "monday", "region": ""}))

    assert line.startswith("error: step 'cut': params.day: Input should be a valid date")


def test_steps_whose_input_comes_from_elsewhere_are_compared_by_the_folders_above() -> None:
    step = with_input("cut", "regional", workspace=INPUT, params={"day": ONE, "region": ""})

    assert said(step | {"inputExpression": {"expression": "workflow.input", "type": "CONSTANT"}}) == []
