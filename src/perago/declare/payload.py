"""Params and results on the wire: JSON, validated strictly in both directions.

The rule: an invalid value, at any depth, raises `TaskInputError` (params) or `TaskResultError` (result) with the path
of the field.  Nothing is coerced (`"3"` is not a number).  Unknown fields are rejected, never silently dropped,
unless the task declares otherwise.  An error message is a single line.  It names the type of a value, never the value
itself, which may be large or secret.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, SchemaSerializer, to_json

from perago.declare.diagnostics import one_line
from perago.errors import TaskInputError, TaskResultError

_MAX_MESSAGES = 5
_JSON_TYPES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_UNDECLARED = ("extra_forbidden", "unexpected_keyword_argument")
_NOT_JSON = "NaN and infinity have no JSON form, return None or a number"
_COMPARISONS = ("greater ", "less ", "finite")


def parse_params(model: type[BaseModel], text: str | bytes, *, strict: bool) -> BaseModel:
    """Parse params from JSON text.  Unknown fields at any level are rejected if `strict`, and ignored otherwise."""
    try:
        return model.model_validate_json(text, strict=True, extra="forbid" if strict else "ignore")
    except ValidationError as error:
        raise TaskInputError(_message("params", model, error)) from None


def invalid_params(
    model: type[BaseModel], text: str | bytes, *, strict: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield the name of each invalid top-level param, its problem, and whether the model does not declare it."""
    try:
        model.model_validate_json(text, strict=True, extra="forbid" if strict else "ignore")
    except ValidationError as error:
        for item in error.errors(include_url=False):
            name, *inner = item["loc"] or ("",)
            if name:
                yield str(name), _param_problem(item), item["type"] in _UNDECLARED and not inner


def json_type(value: object) -> str:
    """Return the name of a value's JSON type, with an article."""
    return _JSON_TYPES.get(type(value), f"a {type(value).__name__}")


def input_type(value: object) -> str:
    """Return the JSON type of a value that a workflow sent, in words.  For null, the text includes the usual cause."""
    return "null (as an expression that names nothing gives)" if value is None else json_type(value)


def parse_result(model: type[BaseModel], text: str | bytes) -> BaseModel:
    """Parse a result written by `dump_result`."""
    try:
        # Results may be dumped by field name or by alias, and computed fields come back as unknown fields.
        return model.model_validate_json(text, strict=True, extra="ignore", by_alias=True, by_name=True)
    except ValidationError as error:
        raise TaskResultError(_message("result", model, error)) from None


def dump_result(model: type[BaseModel], value: object) -> dict[str, Any]:
    """Return the body's result as JSON values.  The result must be an instance of the declared model, or match it."""
    # First, because pydantic turns NaN and infinity into null in fields of type `Any`.
    for path in _lost_numbers("result", value):
        raise TaskResultError(f"{path}: {_NOT_JSON}")
    try:
        result = value if type(value) is model else _validate_as_model(model, value)
        dumped: dict[str, Any] = result.model_dump(mode="json", warnings="error")
    except ValidationError as error:
        raise TaskResultError(_message("result", model, error)) from None
    except PydanticSerializationError as error:
        raise TaskResultError(f"result does not fit {model.__name__}: {_error_text(error)}") from None
    for path in _non_finite_paths("result", dumped):
        raise TaskResultError(f"{path}: {_NOT_JSON}")
    return dumped


def _validate_as_model(model: type[BaseModel], value: object) -> BaseModel:
    if value is None:
        raise TaskResultError(f"result: the body returned nothing, return a {model.__name__}")
    text = value.model_dump_json() if isinstance(value, BaseModel) else to_json(value)
    return model.model_validate_json(text, strict=True, extra="forbid", by_alias=True, by_name=True)


def _message(what: Literal["params", "result"], model: type[BaseModel], error: ValidationError) -> str:
    say = _param_problem if what == "params" else _result_problem
    details = error.errors(include_url=False)
    messages = [f"{_path(what, item)}: {say(item)}" for item in details[:_MAX_MESSAGES]]
    more = f" (and {len(details) - _MAX_MESSAGES} more)" if len(details) > _MAX_MESSAGES else ""
    # An author's validator may raise a message of several lines.
    return one_line(f"{what} does not fit {model.__name__}: {'; '.join(messages)}{more}")


def _param_problem(details: ErrorDetails) -> str:
    if details["type"] in _UNDECLARED:
        return "is not declared, leave it out (or first deploy workers whose model declares it)"
    return _field_problem(details, got=input_type(details["input"]), verb="send")


def _result_problem(details: ErrorDetails) -> str:
    if details["type"] in _UNDECLARED:
        return "is not declared, leave it out or declare it"
    return _field_problem(details, got=json_type(details["input"]), verb="return")


def _field_problem(details: ErrorDetails, *, got: str, verb: str) -> str:
    """Return a text that says what is wrong with a field, and how to correct it."""
    message = details["msg"]
    match details["type"]:
        case "missing":
            return f"is missing, {verb} it"
        case "json_invalid":
            return message
        case "value_error" | "assertion_error":
            refusal = message.partition(", ")[2] or message
            return f"got {got} that the model refuses ({refusal}), {verb} another one"
    wanted = message.removeprefix("Input should be ")
    if wanted == message:
        return f"got {got} that does not fit ({message}), {verb} one that does"
    return f"got {got}, {verb} {'a value that is ' if wanted.startswith(_COMPARISONS) else ''}{wanted}"


def _path(what: str, details: ErrorDetails) -> str:
    return what + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"])


def _error_text(error: PydanticSerializationError) -> str:
    return " ".join(str(error).replace("Pydantic serializer warnings:", "").split())


def _lost_numbers(path: str, value: object) -> Iterator[str]:
    """Yield the path of every NaN or infinity in a value, unless an author's serializer converts it."""
    if isinstance(value, BaseModel):
        # A model that cannot be serialized is reported later, when the result is really dumped.
        with suppress(PydanticSerializationError):
            dumped = _exact_serializer(type(value)).to_python(value, mode="json", warnings=False)
            yield from _non_finite_paths(path, dumped)
            yield from _lost_numbers_in_models(path, value, dumped)
    elif isinstance(value, float):
        yield from _non_finite_paths(path, value)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _lost_numbers(f"{path}.{name}", item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _lost_numbers(f"{path}[{number}]", item)


def _lost_numbers_in_models(path: str, value: object, dumped: object) -> Iterator[str]:
    """Yield the path of every NaN or infinity in models nested in a value.

    In a field of type `Any`, a nested model is dumped with its own serializer, which turns these numbers into null.
    """
    if isinstance(dumped, dict):
        items = dict(value) if isinstance(value, BaseModel | dict) else {}
        pairs = [(f"{path}.{name}", item, dumped.get(name)) for name, item in items.items()]
    elif isinstance(dumped, list) and isinstance(value, list | tuple) and len(dumped) == len(value):
        pairs = [(f"{path}[{n}]", *pair) for n, pair in enumerate(zip(value, dumped, strict=True))]
    else:
        return
    for where, item, shown in pairs:
        # An author's serializer may have replaced the model with something else, or omitted it.
        if isinstance(item, BaseModel) and isinstance(shown, dict):
            yield from _lost_numbers(where, item)
        else:
            yield from _lost_numbers_in_models(where, item, shown)


@lru_cache(maxsize=256)
def _exact_serializer(model: type[BaseModel]) -> SchemaSerializer:
    """Return a serializer for the model that preserves NaN and infinity."""
    return SchemaSerializer(model.__pydantic_core_schema__, {"ser_json_inf_nan": "constants"})


def _non_finite_paths(path: str, value: object) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _non_finite_paths(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _non_finite_paths(f"{path}[{number}]", item)
