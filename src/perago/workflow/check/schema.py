"""Validates a value against a JSON schema while parts of the value are still unknown.

Only certain violations are reported.  `UNKNOWN` fits every schema, and keywords that are not implemented here (formats,
conditions) are ignored: the worker's models decide in the end.  This is the part of JSON Schema that models write, about a
screen of code; libraries for all of it bring four packages, and none accepts a value with holes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perago.workflow.model.expressions import UNKNOWN, Path, has_unknown

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "integer": (
        "a whole number",
        lambda value: not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1,
    ),
    "number": ("a number", lambda value: not isinstance(value, bool) and isinstance(value, int | float)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "object": ("an object", lambda value: isinstance(value, Mapping)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "null": ("null", lambda value: value is None),
}
_NUMBER, _STRING, _LIST = _TYPES["number"][1], _TYPES["string"][1], _TYPES["array"][1]
# Keyword: the values it applies to, the test, the message.
_LIMITS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool], str]] = {
    "minimum": (_NUMBER, lambda value, limit: value >= limit, "must be at least {}"),
    "maximum": (_NUMBER, lambda value, limit: value <= limit, "must be at most {}"),
    "exclusiveMinimum": (_NUMBER, lambda value, limit: value > limit, "must be more than {}"),
    "exclusiveMaximum": (_NUMBER, lambda value, limit: value < limit, "must be less than {}"),
    "minLength": (_STRING, lambda value, limit: len(value) >= limit, "must have at least {} characters"),
    "maxLength": (_STRING, lambda value, limit: len(value) <= limit, "must have at most {} characters"),
    "pattern": (_STRING, lambda value, limit: _matches(limit, value), "must match {}"),
    "minItems": (_LIST, lambda value, limit: len(value) >= limit, "must have at least {} items"),
    "maxItems": (_LIST, lambda value, limit: len(value) <= limit, "must have at most {} items"),
}


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """The path at which a value breaks a schema, and the rule: `must be …`, `is missing`, `is not declared`."""

    path: Path
    rule: str
    value: Any = None
    wrong_kind: bool = False
    """True if the value has the wrong type, rather than a wrong value of the right type."""


def kind_of(value: Any) -> str:
    """Return the type of a JSON value in words; never the value, which may be a secret."""
    found = next(
        name for name in ("null", "boolean", "string", "number", "array", "object") if _is(name, value)
    )
    return "true or false" if found == "boolean" else _TYPES[found][0]


def violations(value: Any, schema: Any, root: Schema, path: Path = ()) -> Iterator[SchemaViolation]:
    """Yield all certain violations; `root` contains the `$defs` that the schema refers to."""
    if value is UNKNOWN or not isinstance(schema, Mapping):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from violations(value, _resolve(reference, root), root, path)
    wrong = list(_of_kind(value, schema, path))
    if wrong:
        yield from wrong
        return
    yield from _limits(value, schema, path)
    for inner in schema.get("allOf") or ():
        yield from violations(value, inner, root, path)
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            yield from _of_choices(value, schema[choice], root, path)
    if isinstance(value, Mapping):
        yield from _of_object(value, schema, root, path)
    elif isinstance(value, list):
        first = schema.get("prefixItems") or []
        for number, item in enumerate(value):
            rule = first[number] if number < len(first) else schema.get("items")
            yield from violations(item, rule, root, (*path, number))


def _of_kind(value: Any, schema: Schema, path: Path) -> Iterator[SchemaViolation]:
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else wanted or []
    if kinds and not any(_is(kind, value) for kind in kinds):
        yield SchemaViolation(path, "must be " + " or ".join(_TYPES[kind][0] for kind in kinds), value, True)
    allowed = [schema["const"]] if "const" in schema else schema.get("enum")
    if allowed is not None and not has_unknown(value) and value not in allowed:
        yield SchemaViolation(path, "must be " + " or ".join(map(repr, allowed)), value)


def _limits(value: Any, schema: Schema, path: Path) -> Iterator[SchemaViolation]:
    for keyword, (applies, kept, text) in _LIMITS.items():
        if keyword in schema and applies(value) and not kept(value, schema[keyword]):
            yield SchemaViolation(path, text.format(schema[keyword]), value)


def _of_choices(value: Any, choices: list[Any], root: Schema, path: Path) -> Iterator[SchemaViolation]:
    tried = [list(violations(value, choice, root, path)) for choice in choices]
    if not all(tried):
        return
    # Report only choices of the value's own type; if there is none, name all types.
    near = [wrong for wrong in tried if not any(one.path == path and one.wrong_kind for one in wrong)]
    if near:
        yield from near[0]
    else:
        kinds = dict.fromkeys(wrong[0].rule.removeprefix("must be ") for wrong in tried)
        yield SchemaViolation(path, "must be " + " or ".join(kinds), value, True)


def _of_object(
    value: Mapping[str, Any], schema: Schema, root: Schema, path: Path
) -> Iterator[SchemaViolation]:
    declared = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield SchemaViolation((*path, name), "is missing")
    for name, item in value.items():
        if name in declared:
            yield from violations(item, declared[name], root, (*path, name))
        elif schema.get("additionalProperties") is False and not schema.get("patternProperties"):
            yield SchemaViolation((*path, name), "is not declared")
        else:
            yield from violations(item, schema.get("additionalProperties"), root, (*path, name))


def _resolve(reference: str, root: Schema) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _is(kind: str, value: Any) -> bool:
    # An unknown type allows every value.
    return kind not in _TYPES or _TYPES[kind][1](value)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:
        # The pattern is written for another regex engine.
        return True
