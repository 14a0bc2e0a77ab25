"""Params and results are JSON, strict both ways, and the field that does not fit is named."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_serializer, field_validator

from perago import TaskInputError, TaskResultError, task
from perago.declare import payload
from perago.declare.task import TaskDefinition


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    count: int = 1


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 0


class Params(BaseModel):
    title: str
    ratio: float = Field(default=1.0, ge=0)
    short: str = Field(default="", max_length=2)
    items: list[Item] = []
    by_name: dict[str, Item] = {}
    either: Item | int | None = None
    open: Open = Open()
    closed: Closed = Closed()
    colour: Colour = Colour.RED
    at: datetime | None = None
    id: UUID | None = None
    renamed: int = Field(default=0, alias="reNamed")

    @field_validator("title")
    @classmethod
    def _soft(cls, title: str) -> str:
        if title == "shout":
            raise ValueError("speak\n    softly")
        return title


class Result(BaseModel):
    rows: int = Field(ge=0)
    items: list[Item] = []
    score: float = 0.0
    amount: Decimal = Decimal(0)
    path: PurePosixPath = PurePosixPath("a")
    renamed: int = Field(default=0, alias="reNamed")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.rows


@task(name="strict", owner_email="a@b.c")
def strict(params: Params) -> Result:
    return Result(rows=1)


@task(name="lenient", owner_email="a@b.c", strict_params=False)
def lenient(params: Params) -> Result:
    return Result(rows=1)


STRICT: TaskDefinition = strict.__perago_task__  # type: ignore[attr-defined]
LENIENT: TaskDefinition = lenient.__perago_task__  # type: ignore[attr-defined]


def test_params_are_read_from_json_with_their_types() -> None:
    text = json.dumps(
        {
            "title": "x",
            "ratio": 2,
            "items": [{"name": "n"}],
            "at": "2026-01-02T03:04:05Z",
            "id": "12345678-1234-5678-1234-567812345678",
            "colour": "red",
            "reNamed": 7,
        }
    )

    params = STRICT.parse_params(text)

    assert isinstance(params, Params)
    assert params.items == [Item(name="n")]
    assert params.at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert params.id == UUID("12345678-1234-5678-1234-567812345678")
    assert (params.colour, params.renamed) == (Colour.RED, 7)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "params.title: is missing, send it"),
        ({"title": 3}, "params.title: got an integer, send a valid string"),
        (
            {"title": None},
            "params.title: got null (as an expression that names nothing gives), send a valid string",
        ),
        ({"title": "x", "ratio": "1"}, "params.ratio: got a string, send a valid number"),
        (
            {"title": "x", "ratio": -1},
            "params.ratio: got an integer, send a value that is greater than or equal to 0",
        ),
        (
            {"title": "x", "short": "long"},
            "got a string that does not fit (String should have at most 2 characters)",
        ),
        (
            {"title": "shout"},
            "params.title: got a string that the model refuses (speak softly), send another one",
        ),
        (
            {"title": "x", "items": [{"name": "n", "count": "3"}]},
            "params.items[0].count: got a string, send a valid integer",
        ),
        (
            {"title": "x", "items": [{"name": "n", "count": 1.0}]},
            "params.items[0].count: got a number, send a valid integer",
        ),
        (
            {"title": "x", "items": [{"name": "n", "count": True}]},
            "params.items[0].count: got a boolean, send a valid integer",
        ),
        ({"title": "x", "colour": "blue"}, "params.colour: got a string, send 'red'"),
        ([], "params: got an array, send an object"),
    ],
)
def test_params_that_do_not_fit_are_refused_with_the_field(value: object, text: str) -> None:
    for definition in (STRICT, LENIENT):
        with pytest.raises(TaskInputError) as caught:
            definition.parse_params(json.dumps(value))

        assert text in str(caught.value)
        assert str(caught.value).startswith("params does not fit Params: ")
        assert "\n" not in str(caught.value)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(TaskInputError, match="params: Invalid JSON"):
        STRICT.parse_params("{")


UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "at the top": ({"extra": 1}, "params.extra: is not declared"),
    "in a list": (
        {"items": [{"name": "n"}, {"name": "n", "extra": 1}]},
        "params.items[1].extra: is not declared",
    ),
    "in a map": ({"by_name": {"k": {"name": "n", "extra": 1}}}, "params.by_name.k.extra: is not declared"),
    "in a union": ({"either": {"name": "n", "extra": 1}}, "params.either.Item.extra: is not declared"),
    "in a model that allows it": ({"open": {"extra": 1}}, "params.open.extra: is not declared"),
    "in a model that forbids it": ({"closed": {"extra": 1}}, "params.closed.extra: is not declared"),
}


@pytest.mark.parametrize(("value", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_params_are_refused_at_every_level(value: dict[str, Any], text: str) -> None:
    with pytest.raises(TaskInputError) as caught:
        STRICT.parse_params(json.dumps({"title": "x", **value}))

    assert text in str(caught.value)


@pytest.mark.parametrize(("value", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_params_are_ignored_at_every_level_where_the_task_says_so(
    value: dict[str, Any], text: str
) -> None:
    params = LENIENT.parse_params(json.dumps({"title": "x", **value}))

    assert "extra" not in json.dumps(params.model_dump(mode="json"))


def test_many_violations_are_reported_up_to_a_bound() -> None:
    items = [{"name": 1} for _ in range(8)]

    with pytest.raises(TaskInputError, match=r"items\[4\]\.name: [^;]* \(and 3 more\)$"):
        STRICT.parse_params(json.dumps({"title": "x", "items": items}))


def test_values_stay_out_of_the_text() -> None:
    with pytest.raises(TaskInputError) as caught:
        STRICT.parse_params('{"title": "x", "ratio": "hunter2"}')

    assert "hunter2" not in str(caught.value)


def test_a_result_is_dumped_as_json_values() -> None:
    dumped = STRICT.dump_result(Result(rows=2, items=[Item(name="n")], amount=Decimal("1.50"), reNamed=4))

    assert dumped == {
        "rows": 2,
        "items": [{"name": "n", "count": 1}],
        "score": 0.0,
        "amount": "1.50",
        "path": "a",
        "renamed": 4,
        "double": 4,
    }


class Wider(Result):
    more: int = 0


class Twin(BaseModel):
    rows: int = 5


@pytest.mark.parametrize("value", [{"rows": 5}, Twin()], ids=["a dict", "another model"])
def test_a_result_that_fits_its_model_is_accepted(value: object) -> None:
    assert STRICT.dump_result(value)["rows"] == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "result: the body returned nothing, return a Result"),
        ({"rows": "5"}, "result.rows: got a string, return a valid integer"),
        ({"rows": -1}, "result.rows: got an integer, return a value that is greater than or equal to 0"),
        ({"rows": 1, "odd": 1}, "result.odd: is not declared"),
        (Wider(rows=1), "result.more: is not declared"),
        (3, "result: got an integer, return an object"),
        (Result.model_construct(rows="many"), "field_name='rows'"),
        (Result.model_construct(rows=1, items=[Item.model_construct(name=3, count=1)]), "field_name='name'"),
        (Result(rows=1, score=math.nan), "result.score: NaN and infinity have no JSON form"),
        (object(), "result"),
    ],
    # Without addresses: workers of one run must agree on the names.
    ids=lambda value: "object" if type(value) is object else repr(value),
)
def test_a_result_that_does_not_fit_is_refused_with_the_field(value: object, text: str) -> None:
    with pytest.raises(TaskResultError) as caught:
        STRICT.dump_result(value)

    assert text in str(caught.value)


def test_a_recorded_result_is_read_back() -> None:
    result = Result(rows=2, items=[Item(name="n")], reNamed=4)

    assert STRICT.parse_result(json.dumps(STRICT.dump_result(result))) == result


def test_a_recorded_result_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(TaskResultError, match=r"result does not fit Result: result\.rows: is missing"):
        STRICT.parse_result("{}")


def test_an_author_s_own_serializer_is_kept() -> None:
    class Percent(BaseModel):
        share: float

        @field_serializer("share")
        def shown(self, share: float) -> str:
            return f"{share:.0%}"

    @task(name="percent", owner_email="a@b.c")
    def percent(params: Params) -> Percent:
        return Percent(share=0.5)

    definition: TaskDefinition = percent.__perago_task__  # type: ignore[attr-defined]

    assert definition.dump_result(Percent(share=0.5)) == {"share": "50%"}


class Anything(BaseModel):
    value: Any = None
    known: dict[str, Any] = Field(default_factory=dict)


class Loose(BaseModel):
    value: Any = None


def _dump(model: type[BaseModel], value: object) -> dict[str, Any]:
    return payload.dump_result(model, value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda number: Anything(value=number), "result.value"),
        (lambda number: Anything(value={"deep": [1, (2, number)]}), "result.value.deep[1][1]"),
        (lambda number: Anything(known={"x": {"y": number}}), "result.known.x.y"),
        (lambda number: Anything(value=[Loose(value=number)]), "result.value[0].value"),
        (lambda number: {"value": [number]}, "result.value[0]"),
        (lambda number: {"value": Loose(value=number)}, "result.value.value"),
        (lambda number: Loose(value=[number]), "result.value[0]"),
    ],
    ids=["itself", "nested", "in a dict", "in a model", "a dict", "a model in a dict", "another model"],
)
def test_nan_and_infinity_in_a_field_of_any_type_are_refused_by_name(
    make: Any, path: str, number: float
) -> None:
    with pytest.raises(TaskResultError) as caught:
        _dump(Anything, make(number))

    assert str(caught.value) == f"{path}: NaN and infinity have no JSON form, return None or a number"


def test_the_output_of_an_authors_serializer_for_nan_is_accepted() -> None:
    class Score(BaseModel):
        score: Any
        scores: list[float]
        hidden: Any = Field(default=None, exclude=True)

        @field_serializer("score", "scores", when_used="json")
        def shown(self, value: Any) -> Any:
            return None

    made = Score(score=math.nan, scores=[math.nan], hidden=Loose(value=math.nan))

    assert _dump(Score, made) == {"score": None, "scores": None}
    assert _dump(Anything, Anything(value=[1.5, None, "NaN", {"a": Loose()}])) == {
        "value": [1.5, None, "NaN", {"a": {"value": None}}],
        "known": {},
    }
