"""A value with holes against a JSON schema: what models write is understood, and what is not known is not judged."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from perago.runtime.workflows.known_values import UNKNOWN
from perago.runtime.workflows.schema import Misfit, kind_of, misfits


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


SCHEMA = Model.model_json_schema()


def rules(**fields: Any) -> list[tuple[Any, str]]:
    found = misfits({"text": "abc", **fields}, SCHEMA, SCHEMA)
    return [(one.path, one.rule) for one in found]


FITTING: list[dict[str, Any]] = [
    {},
    {"number": 3, "whole": 8, "yes": False, "mode": "b", "inner": None},
    {"number": None, "inner": {"deep": 1}, "many": [{"deep": 1}, {"deep": 2}], "pair": [1, "x"]},
    {"named": {"x": 1}, "either": "text"},
    {"whole": UNKNOWN, "inner": UNKNOWN, "many": [UNKNOWN, {"deep": UNKNOWN}], "mode": UNKNOWN},
]


@pytest.mark.parametrize("fields", FITTING)
def test_what_fits_the_model_fits_its_schema(fields: dict[str, Any]) -> None:
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
def test_what_does_not_fit_is_named_by_its_path_and_rule(
    name: str, value: Any, path: tuple[Any, ...], rule: str
) -> None:
    assert rules(**{name: value}) == [(path, rule)]


def test_a_missing_field_is_missing_although_others_are_not_known() -> None:
    assert list(misfits({"whole": UNKNOWN}, SCHEMA, SCHEMA)) == [Misfit(("text",), "is missing")]


@pytest.mark.parametrize(
    "schema", [True, None, {"type": "tuple"}, {"$ref": "#/$defs/gone"}, {"pattern": "(?<x"}, {"if": {}}]
)
def test_a_schema_that_is_not_understood_judges_nothing(schema: Any) -> None:
    assert list(misfits("text", schema, {})) == []


def test_a_value_is_told_by_its_kind() -> None:
    kinds = [kind_of(value) for value in (None, True, "s", 1, 1.5, [], {})]

    assert kinds == ["null", "true or false", "a string", "a number", "a number", "a list", "an object"]
