"""A value with holes against a JSON schema: what models write is understood, and what is not known is not judged."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from perago.declare.payload import parse_params
from perago.errors import TaskInputError
from perago.workflow.check.schema import SchemaViolation, kind_of, violations
from perago.workflow.model.expressions import UNKNOWN


class Inner(BaseModel):
    deep: int


class Model(BaseModel, extra="forbid"):
    text: str = Field(min_length=1, max_length=3, pattern="^[a-z]*$")
    number: float | None = Field(default=None, gt=0, le=10)
    whole: int = Field(default=1, ge=1, lt=9)
    yes: bool = True
    mode: Literal["a", "b"] = "a"
    inner: Inner | None = None
    many: list[Inner] = Field(default=[], max_length=2)
    pair: tuple[int, str] = (1, "a")
    named: dict[str, int] = {}
    either: int | str = 1


class Colour(Enum):
    RED = "red"


class Round(BaseModel):
    kind: Literal["round"]
    r: int


class Square(BaseModel):
    kind: Literal["square"]
    side: int


SCHEMA = Model.model_json_schema()


def rules(**fields: Any) -> list[tuple[Any, str]]:
    found = violations({"text": "abc", **fields}, SCHEMA, SCHEMA)
    return [(one.path, one.rule) for one in found]


FITTING: list[dict[str, Any]] = [
    {},
    {"number": 3, "whole": 8, "yes": False, "mode": "b", "inner": None},
    {"number": None, "inner": {"deep": 1}, "many": [{"deep": 1}, {"deep": 2}], "pair": [1, "x"]},
    {"named": {"x": 1}, "either": "text"},
    {"whole": UNKNOWN, "inner": UNKNOWN, "many": [UNKNOWN, {"deep": UNKNOWN}], "mode": UNKNOWN},
]


@pytest.mark.parametrize("fields", FITTING)
def test_a_value_that_fits_the_model_fits_its_schema(fields: dict[str, Any]) -> None:
    assert rules(**fields) == []


WRONG: list[tuple[str, Any, tuple[Any, ...], str]] = [
    ("text", 3, ("text",), "must be a string"),
    ("text", None, ("text",), "must be a string"),
    ("text", "", ("text",), "must have at least 1 characters"),
    ("text", "abcd", ("text",), "must have at most 3 characters"),
    ("text", "1", ("text",), "must match ^[a-z]*$"),
    ("number", "3", ("number",), "must be a number or null"),
    ("number", True, ("number",), "must be a number or null"),
    ("number", 0, ("number",), "must be more than 0"),
    ("number", 11, ("number",), "must be at most 10"),
    ("whole", 1.5, ("whole",), "must be a whole number"),
    ("whole", 0, ("whole",), "must be at least 1"),
    ("whole", 9, ("whole",), "must be less than 9"),
    ("yes", "true", ("yes",), "must be true or false"),
    ("mode", "c", ("mode",), "must be 'a' or 'b'"),
    ("inner", 3, ("inner",), "must be an object or null"),
    ("inner", {}, ("inner", "deep"), "is missing"),
    ("inner", {"deep": "x"}, ("inner", "deep"), "must be a whole number"),
    ("many", {}, ("many",), "must be a list"),
    ("many", [{"deep": 1}, {"deep": None}], ("many", 1, "deep"), "must be a whole number"),
    ("many", [{"deep": 1}] * 3, ("many",), "must have at most 2 items"),
    ("pair", [1, 2], ("pair", 1), "must be a string"),
    ("named", {"x": "1"}, ("named", "x"), "must be a whole number"),
    ("either", [], ("either",), "must be a whole number or a string"),
    ("other", 1, ("other",), "is not declared"),
]


@pytest.mark.parametrize(("name", "value", "path", "rule"), WRONG)
def test_a_value_that_does_not_fit_is_named_by_its_path_and_rule(
    name: str, value: Any, path: tuple[Any, ...], rule: str
) -> None:
    assert rules(**{name: value}) == [(path, rule)]


def test_a_missing_field_is_missing_although_others_are_not_known() -> None:
    assert list(violations({"whole": UNKNOWN}, SCHEMA, SCHEMA)) == [SchemaViolation(("text",), "is missing")]


@pytest.mark.parametrize(
    "schema", [True, None, {"type": "tuple"}, {"$ref": "#/$defs/gone"}, {"pattern": "(?<x"}, {"if": {}}]
)
def test_a_schema_that_is_not_understood_judges_nothing(schema: Any) -> None:
    assert list(violations("text", schema, {})) == []


class Wide(BaseModel):
    """Fields whose JSON form is not what it seems."""

    day: date = date(2026, 1, 1)
    moment: datetime | None = None
    amount: Decimal = Field(default=Decimal(1), ge=0)
    whole: int = 0
    key: UUID | None = None
    data: bytes = b""
    colour: Colour = Colour.RED
    tags: set[str] = set()
    free: Any = None
    shape: Annotated[Round | Square, Field(discriminator="kind")] | None = None
    nested: list[dict[str, int | None]] = []


JSON_VALUES = st.sampled_from(
    [
        *(None, True, 0, 1, -1, 2.0, 2.5, "", "a", "1.50", "2026-11-16", "2026-11-16T01:02:03Z", "red"),
        *([], ["a"], ["a", "a"], {}, [{"x": None}], [{"x": 1}], "a8098c1a-f86e-11da-bd1a-00112444be1e"),
        *({"kind": "round", "r": 1}, {"kind": "square", "r": 1}),
    ]
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(sorted(Wide.model_fields)), JSON_VALUES))
def test_nothing_that_a_worker_would_take_is_refused(value: dict[str, Any]) -> None:
    schema = Wide.model_json_schema(mode="validation")
    try:
        parse_params(Wide, json.dumps(value), strict=True)
    except TaskInputError:
        return

    assert list(violations(value, schema, schema)) == []


def test_a_value_is_told_by_its_kind() -> None:
    kinds = [kind_of(value) for value in (None, True, "s", 1, 1.5, [], {})]

    assert kinds == ["null", "true or false", "a string", "a number", "a number", "a list", "an object"]
