"""Reads the JSON schemas in TaskDefs: which fields a value may have, and which values violate the schema.

A `Shape` is the list of schemas that may apply to a value.  None means "anything", and an empty list means "no value".

`violations` validates a value while parts of it are still unknown.  Only certain violations are reported: `UNKNOWN`
matches every schema, and keywords that are not implemented here (formats, conditions) are ignored.  The worker's models
have the final say.  The code covers the part of JSON Schema that pydantic models generate, in about one screen of code.
A library for all of JSON Schema would add four packages, and none accepts a value with unknown parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import TaskDefinitionError
from perago.workflow.model.expressions import UNKNOWN, Part, Path, has_unknown

Schema = Mapping[str, Any]

_JSON_TYPES = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
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


class Shape:
    """The schemas that may apply to one value."""

    def __init__(self, schemas: Sequence[Any] | None, root: Schema) -> None:
        self._root = root
        found = None if schemas is None else [one for schema in schemas for one in self._plain(schema)]
        # A schema without a type, or with keywords that are not read here, allows anything.
        self._schemas = None if found is None or any(not _types(schema) for schema in found) else found

    @property
    def missing(self) -> bool:
        """True if no schema applies, so that there can be no value."""
        return self._schemas is not None and not self._schemas

    @property
    def types(self) -> set[str] | None:
        """The JSON types that the value may have; None for any."""
        if self._schemas is None:
            return None
        return {name for schema in self._schemas for name in _types(schema)}

    @property
    def names(self) -> list[str]:
        """The fields that the value may have."""
        return [name for schema in self._schemas or () for name in schema.get("properties", {})]

    def at(self, part: Part) -> Shape:
        """Return the shape of one field or one item of the value."""
        if self._schemas is None or isinstance(part, tuple):
            return Shape(None, self._root)
        inner: list[Any] = []
        for schema in self._schemas:
            found = _item(schema, part) if isinstance(part, int) else _field(schema, part)
            if found is None:
                return Shape(None, self._root)
            inner.extend(found)
        return Shape(inner, self._root)

    def _plain(self, schema: Any, depth: int = 0) -> Iterator[Schema]:
        """Yield the schemas that a schema stands for, after resolving references and choices (`anyOf`, `oneOf`)."""
        if not isinstance(schema, Mapping) or depth > 20:
            yield {}
        elif "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            yield from self._plain(self._root.get("$defs", {}).get(name), depth + 1)
        elif "anyOf" in schema or ("oneOf" in schema and "properties" not in schema):
            for choice in schema.get("anyOf") or schema["oneOf"]:
                yield from self._plain(choice, depth + 1)
        else:
            yield schema


@dataclass(frozen=True, slots=True)
class TaskShapes:
    """The shapes of a task's params and of its output."""

    params: Shape
    output: Shape


def task_shapes(task: TaskDefinition) -> TaskShapes:
    """Return the shapes of a task.  They allow anything if its models have no JSON schema."""
    try:
        built = build_taskdef(task)
    except TaskDefinitionError:
        return TaskShapes(Shape(None, {}), Shape(None, {}))
    given, made = built["inputSchema"]["data"], built["outputSchema"]["data"]
    return TaskShapes(Shape([given], given).at("params"), Shape([made], made))


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """A violation of a schema: its path in the value, and the rule (`must be …`, `is missing`, `is not declared`)."""

    path: Path
    rule: str
    value: Any = None
    wrong_kind: bool = False
    """True if the value has the wrong type, rather than a wrong value of the right type."""


def kind_of(value: Any) -> str:
    """Return a JSON value's type in words, never the value itself, which may be a secret."""
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
    # Report only choices that accept the value's type.  If there are none, list all types.
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


def _types(schema: Schema) -> set[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return {_JSON_TYPES.get(type(value), "object") for value in values}


def _field(schema: Schema, name: str) -> list[Any] | None:
    """Return the schemas that may apply to a field of an object; None if the field may be anything."""
    if "object" not in _types(schema):
        return []
    if name in schema.get("properties", {}):
        return [schema["properties"][name]]
    if "patternProperties" in schema:
        return None
    others = schema.get("additionalProperties", "properties" not in schema)
    if others is True:
        return None
    return [others] if isinstance(others, Mapping) else []


def _item(schema: Schema, index: int) -> list[Any] | None:
    if "array" not in _types(schema):
        return []
    listed = schema.get("prefixItems", [])
    if 0 <= index < len(listed):
        return [listed[index]]
    items = schema.get("items")
    return [items] if isinstance(items, Mapping) else None
