"""Shapes of params and outputs, from the schemas of a task's TaskDef; everything else is unknown.

A shape is the list of schemas that a value may have; None means "anything", and an empty list "no value".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import TaskDefinitionError
from perago.workflow.model.expressions import Part

Schema = Mapping[str, Any]

_TYPES = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


class Shape:
    """The possible schemas of one value."""

    def __init__(self, schemas: Sequence[Any] | None, root: Schema) -> None:
        self._root = root
        found = None if schemas is None else [one for schema in schemas for one in self._plain(schema)]
        # A schema without a type, or with keywords that are not read here, allows anything.
        self._schemas = None if found is None or any(not _types(schema) for schema in found) else found

    @property
    def missing(self) -> bool:
        """True if there can be no value."""
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
        """Return the shape of a field or item of the value."""
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
        """Yield the schema with references and choices resolved."""
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
    """The shapes of a task's params and output."""

    params: Shape
    output: Shape


def task_shapes(task: TaskDefinition) -> TaskShapes:
    """Return the shapes of a task; they allow anything if its models have no JSON form."""
    try:
        built = build_taskdef(task)
    except TaskDefinitionError:
        return TaskShapes(Shape(None, {}), Shape(None, {}))
    given, made = built["inputSchema"]["data"], built["outputSchema"]["data"]
    return TaskShapes(Shape([given], given).at("params"), Shape([made], made))


def _types(schema: Schema) -> set[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return {_TYPES.get(type(value), "object") for value in values}


def _field(schema: Schema, name: str) -> list[Any] | None:
    """Return the schemas of a field; None if it may be anything."""
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
