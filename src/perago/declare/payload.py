"""Params and results on the wire: JSON, checked strictly both ways.

The rule: what does not fit is a `TaskInputError` (params) or a `TaskResultError` (result) that names the field, however
deep; nothing is coerced (`"3"` is no number) and, unless the task says otherwise, nothing unknown is dropped.
Texts are one line.  They name a value's type and never the value: it may be large, and it may be secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from perago.errors import TaskInputError, TaskResultError

_TOLD = 5
_JSON_TYPES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null (as an expression that names nothing gives)",
}
_COMPARISONS = ("greater ", "less ", "finite")


def parse_params(model: type[BaseModel], text: str | bytes, *, strict: bool) -> BaseModel:
    """Params from JSON text; unknown fields are refused at every level, or ignored where not `strict`."""
    try:
        return model.model_validate_json(text, strict=True, extra="forbid" if strict else "ignore")
    except ValidationError as error:
        raise TaskInputError(_params_told(model, error)) from None


def json_type(value: object) -> str:
    """What a value is in JSON, with its article."""
    return _JSON_TYPES.get(type(value), f"a {type(value).__name__}")


def parse_result(model: type[BaseModel], text: str | bytes) -> BaseModel:
    """A result that `dump_result` once wrote."""
    try:
        # Results are dumped by field name, aliases or not; computed fields come back as unknown ones.
        return model.model_validate_json(text, strict=True, extra="ignore", by_alias=True, by_name=True)
    except ValidationError as error:
        raise TaskResultError(_told("result", model, error)) from None


def dump_result(model: type[BaseModel], value: object) -> dict[str, Any]:
    """What the body returned, as JSON values; it must be the declared model or fit it."""
    try:
        result = value if type(value) is model else _fitted(model, value)
        dumped: dict[str, Any] = result.model_dump(mode="json", warnings="error")
    except ValidationError as error:
        raise TaskResultError(_told("result", model, error)) from None
    except PydanticSerializationError as error:
        raise TaskResultError(f"result does not fit {model.__name__}: {_plain(error)}") from None
    for path in _not_finite("result", dumped):
        raise TaskResultError(f"{path}: NaN and infinity have no JSON form")
    return dumped


def _fitted(model: type[BaseModel], value: object) -> BaseModel:
    if value is None:
        raise TaskResultError(f"result: the body returned nothing, it declares {model.__name__}")
    text = value.model_dump_json() if isinstance(value, BaseModel) else to_json(value)
    return model.model_validate_json(text, strict=True, extra="forbid", by_alias=True, by_name=True)


def _told(what: str, model: type[BaseModel], error: ValidationError) -> str:
    return _listed(what, model, error, _rule)


def _params_told(model: type[BaseModel], error: ValidationError) -> str:
    return _listed("params", model, error, _remedy)


def _listed(
    what: str, model: type[BaseModel], error: ValidationError, say: Callable[[ErrorDetails], str]
) -> str:
    details = error.errors(include_url=False)
    told = [f"{_path(what, item)}: {say(item)}" for item in details[:_TOLD]]
    more = f" (and {len(details) - _TOLD} more)" if len(details) > _TOLD else ""
    # An author's validator may say its mistake in several lines.
    return " ".join(f"{what} does not fit {model.__name__}: {'; '.join(told)}{more}".split())


def _remedy(details: ErrorDetails) -> str:
    """What is wrong with a field of the params, and what to send."""
    match details["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "is not declared, leave it out (or first deploy workers whose model declares it)"
        case "missing":
            return "is missing, send it"
        case "json_invalid":
            return details["msg"]
        case "value_error" | "assertion_error":
            refusal = details["msg"].partition(", ")[2] or details["msg"]
            return f"got {json_type(details['input'])} that the model refuses ({refusal}), send another one"
    got = f"got {json_type(details['input'])}"
    wanted = details["msg"].removeprefix("Input should be ")
    if wanted == details["msg"]:
        return f"{got} that does not fit ({wanted}), send one that does"
    return f"{got}, send {'a value that is ' if wanted.startswith(_COMPARISONS) else ''}{wanted}"


def _path(what: str, details: ErrorDetails) -> str:
    return what + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in details["loc"])


def _rule(details: ErrorDetails) -> str:
    match details["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "is not declared"
        case "missing":
            return "is missing"
        case "json_invalid":
            return details["msg"]
        case _:
            return f"{details['msg']}, got {type(details['input']).__name__}"


def _plain(error: PydanticSerializationError) -> str:
    return " ".join(str(error).replace("Pydantic serializer warnings:", "").split())


def _not_finite(path: str, value: object) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _not_finite(f"{path}.{name}", item)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _not_finite(f"{path}[{number}]", item)
