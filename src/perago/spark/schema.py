"""Tables with a declared schema: a pydantic model or a StructType says which columns a table has.

The rule: a table fits or the error lists every difference, names, types and nullability.  A StructType is taken
word for word.  A model is read as Python reads it: `int` is any whole number, `float` any floating one, `datetime` a
timestamp with or without a zone, `X | None` a column that may hold nulls; `extra="allow"` lets further columns be.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from perago.errors import TaskDefinitionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TableSchema = type[BaseModel] | Any
"""A pydantic model or a StructType."""

_FAMILIES = (
    {"tinyint", "smallint", "int", "bigint"},
    {"float", "double"},
    {"timestamp", "timestamp_ntz"},
)


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared table: its columns as Spark has them, whether they are taken word for word, and whether more may be."""

    struct: StructType
    exact: bool
    open: bool = False


def declared(schema: TableSchema) -> Declared:
    """What a model or StructType declares."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return Declared(schema, exact=True)
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return Declared(
            _struct(schema), exact=False, open=schema.model_config.get("extra") in ("allow", "ignore")
        )
    raise TaskDefinitionError(f"a table's schema must be a pydantic model or a StructType, not {schema!r}")


def differences(wanted: Declared, found: StructType, tells_nulls: Callable[[str], bool]) -> list[str]:
    """Every way in which a table is not what was declared; `tells_nulls`: whether a column's nullability is known."""
    there = {field.name: field for field in found.fields}
    wrong = []
    for field in wanted.struct.fields:
        one = there.get(field.name)
        said = field.dataType.simpleString()
        if one is None:
            wrong.append(f"column {field.name!r} ({said}) is missing")
            continue
        if not _fits(field.dataType, one.dataType, exact=wanted.exact):
            wrong.append(f"column {field.name!r} is {one.dataType.simpleString()}, declared {said}")
        if not field.nullable and one.nullable and tells_nulls(field.name):
            wrong.append(f"column {field.name!r} may hold nulls, declared without")
    if not wanted.open:
        names = {field.name for field in wanted.struct.fields}
        extra = [field for field in found.fields if field.name not in names]
        wrong += [
            f"column {field.name!r} ({field.dataType.simpleString()}) is not declared" for field in extra
        ]
    return wrong


def _fits(wanted: DataType, found: DataType, *, exact: bool) -> bool:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if exact:
        return wanted.simpleString() == found.simpleString()
    match wanted, found:
        case ArrayType(), ArrayType():
            return _fits(wanted.elementType, found.elementType, exact=False)
        case MapType(), MapType():
            keys = _fits(wanted.keyType, found.keyType, exact=False)
            return keys and _fits(wanted.valueType, found.valueType, exact=False)
        case StructType(), StructType():
            there = {field.name: field.dataType for field in found.fields}
            same = there.keys() == {field.name for field in wanted.fields}
            return same and all(
                _fits(field.dataType, there[field.name], exact=False) for field in wanted.fields
            )
        case DecimalType(), DecimalType():
            return True
    one, other = wanted.simpleString(), found.simpleString()
    return one == other or any(one in family and other in family for family in _FAMILIES)


def _struct(model: type[BaseModel]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    fields = []
    for name, field in model.model_fields.items():
        inner, nullable = _without_none(field.annotation)
        fields.append(StructField(name, _type(inner, f"{model.__name__}.{name}"), nullable))
    return StructType(fields)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, annotation is type(None)
    kept = [one for one in get_args(annotation) if one is not type(None)]
    return (kept[0] if len(kept) == 1 else annotation), len(kept) < len(get_args(annotation))


def _type(annotation: Any, where: str) -> DataType:
    from pyspark.sql import types as spark

    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, tuple, set, frozenset, Sequence) and arguments:
        inner, nullable = _without_none(arguments[0])
        return spark.ArrayType(_type(inner, where), nullable)
    if origin in (dict, Mapping) and len(arguments) == 2:
        inner, nullable = _without_none(arguments[1])
        return spark.MapType(_type(arguments[0], where), _type(inner, where), nullable)
    if origin is Literal:
        annotation = type(arguments[0])
    if isinstance(annotation, type):
        if issubclass(annotation, BaseModel):
            return _struct(annotation)
        plain: list[tuple[type, DataType]] = [
            (bool, spark.BooleanType()),
            (enum.IntEnum, spark.LongType()),
            (int, spark.LongType()),
            (float, spark.DoubleType()),
            (str, spark.StringType()),
            (enum.Enum, spark.StringType()),
            (bytes, spark.BinaryType()),
            (decimal.Decimal, spark.DecimalType(38, 18)),
            (datetime.datetime, spark.TimestampType()),
            (datetime.date, spark.DateType()),
        ]
        for python, found in plain:
            if issubclass(annotation, python):
                return found
    raise TaskDefinitionError(
        f"{where}: {annotation!r} has no column type in Spark; declare a StructType instead"
    )
