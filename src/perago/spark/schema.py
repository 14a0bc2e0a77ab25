"""Compares tables with a declared schema: a pydantic model or a StructType.

If a table does not match, the error lists every difference in names, types and nullability.  A StructType must match
exactly.  A model is interpreted as in Python: `int` is any integer, `float` any floating-point number, `datetime` a
timestamp with or without a zone (`AwareDatetime` one with, `NaiveDatetime` one without), `Decimal` any decimal unless
`Field(max_digits=…, decimal_places=…)` specifies one, an enum the type of its values, and `X | None` a nullable column.
`extra="allow"` or `extra="ignore"` permits additional columns.

The files of one table must also agree on details that a model leaves open, because Spark reads them all with one
schema.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Union, get_args, get_origin

from pydantic import (
    AwareDatetime,
    BaseModel,
    FutureDate,
    FutureDatetime,
    NaiveDatetime,
    PastDate,
    PastDatetime,
    RootModel,
)

from perago.errors import TaskDefinitionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TableSchema = type[BaseModel] | Any
"""A table's schema as an author declares it: a pydantic model or a StructType."""

_FAMILIES = (
    {"tinyint", "smallint", "int", "bigint"},
    {"float", "double"},
)


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A declared schema: its Spark columns, whether types must match exactly, and whether other columns are allowed."""

    struct: StructType
    exact: bool
    open: bool = False


def declared_schema(schema: TableSchema) -> DeclaredSchema:
    """Convert a model or a StructType to the schema that it declares.

    Raises `TaskDefinitionError` for anything else.
    """
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return DeclaredSchema(schema, exact=True)
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return DeclaredSchema(
            _struct(schema), exact=False, open=schema.model_config.get("extra") in ("allow", "ignore")
        )
    raise TaskDefinitionError(f"a table's schema must be a pydantic model or a StructType, not {schema!r}")


def differences(
    wanted: DeclaredSchema, found: StructType, nullability_known: Callable[[str], bool]
) -> list[str]:
    """Return a description of every difference between a table's columns and the declared schema.

    Nullability is compared only in columns for which `nullability_known` returns True.
    """
    there = {field.name: field for field in found.fields}
    problems = []
    for field in wanted.struct.fields:
        one = there.get(field.name)
        declared_type = field.dataType.simpleString()
        if one is None:
            problems.append(f"column {field.name!r} ({declared_type}) is missing")
            continue
        if not _types_match(field.dataType, one.dataType, exact=wanted.exact):
            problems.append(
                f"column {field.name!r} is {one.dataType.simpleString()}, declared {declared_type}"
            )
        if not field.nullable and one.nullable and nullability_known(field.name):
            problems.append(f"column {field.name!r} may hold nulls, declared without")
    if not wanted.open:
        names = {field.name for field in wanted.struct.fields}
        extra = [field for field in found.fields if field.name not in names]
        problems += [
            f"column {field.name!r} ({field.dataType.simpleString()}) is not declared" for field in extra
        ]
    return problems


def type_conflicts(written: StructType, stored: StructType) -> list[str]:
    """Return a description of every column whose type differs from its type in the stored files.

    Columns that exist on only one side are ignored.  Spark reads a column whatever the case of its name.
    """
    found = {field.name: field.dataType.simpleString() for field in stored.fields}
    found = {name.lower(): kind for name, kind in found.items()} | found
    written_types = {field.name: field.dataType.simpleString() for field in written.fields}
    there = {name: found.get(name, found.get(name.lower(), kind)) for name, kind in written_types.items()}
    return [
        f"column {name!r} is {kind}, and {there[name]} in files that stay"
        for name, kind in written_types.items()
        if there[name] != kind
    ]


def _types_match(wanted: DataType, found: DataType, *, exact: bool) -> bool:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType, TimestampNTZType, TimestampType

    if exact:
        return wanted.simpleString() == found.simpleString()
    match wanted, found:
        case ArrayType(), ArrayType():
            return _types_match(wanted.elementType, found.elementType, exact=False)
        case MapType(), MapType():
            keys = _types_match(wanted.keyType, found.keyType, exact=False)
            return keys and _types_match(wanted.valueType, found.valueType, exact=False)
        case StructType(), StructType():
            there = {field.name: field.dataType for field in found.fields}
            same = there.keys() == {field.name for field in wanted.fields}
            return same and all(
                _types_match(field.dataType, there[field.name], exact=False) for field in wanted.fields
            )
        case DecimalType(), DecimalType() if not wanted.hasPrecisionInfo:
            return True
        case TimestampType(), TimestampType() | TimestampNTZType() if not getattr(
            wanted, "hasZoneInfo", True
        ):
            return True
    one, other = wanted.simpleString(), found.simpleString()
    return one == other or any(one in family and other in family for family in _FAMILIES)


def _struct(model: type[BaseModel], around: tuple[type[BaseModel], ...] = ()) -> StructType:
    """Return the columns of a model. `around` are the models that it is nested in."""
    from pyspark.sql.types import StructField, StructType

    fields = []
    for name, field in model.model_fields.items():
        one = _ParsedAnnotation.parse(field.annotation, field.metadata)
        fields.append(
            StructField(name, _type(one, f"{model.__name__}.{name}", (*around, model)), one.nullable)
        )
    return StructType(fields)


@dataclass(frozen=True, slots=True)
class _ParsedAnnotation:
    """An annotation stripped of `Annotated` and `None`, plus the metadata and nullability that they expressed."""

    annotation: Any
    nullable: bool
    metadata: tuple[Any, ...]

    @classmethod
    def parse(cls, annotation: Any, metadata: Iterable[Any] = ()) -> _ParsedAnnotation:
        """Parse an annotation. `metadata` is the metadata of the field itself."""
        collected, nullable = list(metadata), annotation is type(None)
        while True:
            if get_origin(annotation) is Annotated:
                annotation, *more = get_args(annotation)
                # `Field(…)` inside an annotation keeps its constraints in a separate list.
                collected += [one for item in more for one in getattr(item, "metadata", [item])]
                continue
            if get_origin(annotation) in (Union, types.UnionType):
                kept = [one for one in get_args(annotation) if one is not type(None)]
                nullable = nullable or len(kept) < len(get_args(annotation))
                if len(kept) == 1:
                    annotation = kept[0]
                    continue
            if isinstance(annotation, NewType):
                annotation = annotation.__supertype__
                continue
            if type(annotation).__name__ == "TypeAliasType":  # of typing, or of typing_extensions
                annotation = annotation.__value__
                continue
            if isinstance(annotation, type) and issubclass(annotation, RootModel):
                root = annotation.model_fields["root"]
                annotation, collected = root.annotation, [*collected, *root.metadata]
                continue
            if get_origin(annotation) is Literal and None in get_args(annotation):
                nullable = True
            return cls(annotation, nullable, tuple(collected))


def _decimal(metadata: Iterable[Any], where: str) -> DataType:
    """Return the column type that a `Decimal`'s constraints specify, or a placeholder that stands for any decimal."""
    from pyspark.sql.types import DecimalType

    limits = {
        name: value
        for one in metadata
        for name in ("max_digits", "decimal_places")
        if (value := getattr(one, name, None)) is not None
    }
    if not limits:
        open_type = DecimalType(38, 18)
        open_type.hasPrecisionInfo = False
        return open_type
    digits, places = limits.get("max_digits"), limits.get("decimal_places")
    if digits is None or places is None or not 0 <= places <= digits <= 38 or digits < 1:
        given = ", ".join(f"{name}={value}" for name, value in limits.items())
        raise TaskDefinitionError(
            f"{where}: {given}: a decimal column has both max_digits (1 to 38) and decimal_places (0 to max_digits); "
            "give both, or neither for any decimal"
        )
    return DecimalType(digits, places)


def _any_timestamp() -> DataType:
    """Return a timestamp type that stands for one with or without a zone."""
    from pyspark.sql.types import TimestampType

    # A copy, because there is only one `TimestampType()`.
    open_type = copy.copy(TimestampType())
    setattr(open_type, "hasZoneInfo", False)  # noqa: B010 - PySpark does not declare it
    return open_type


def _common_type(values: Iterable[Any], where: str) -> type:
    """Return the one type of all these values, enum members counted as their values."""
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if len(kinds) != 1:
        raise TaskDefinitionError(
            f"{where}: its values have several types, and a column has one; declare a StructType instead"
        )
    return kinds.pop()


def _type(parsed: _ParsedAnnotation, where: str, around: tuple[type[BaseModel], ...]) -> DataType:
    from pyspark.sql import types as spark

    annotation = parsed.annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple and len({one for one in arguments if one is not ...}) > 1:
        raise TaskDefinitionError(f"{where}: {annotation!r} holds several types; declare a model for it")
    if origin in (list, tuple, set, frozenset, Sequence) and arguments:
        inner = _ParsedAnnotation.parse(arguments[0])
        return spark.ArrayType(_type(inner, where, around), inner.nullable)
    if origin in (dict, Mapping) and len(arguments) == 2:
        key, inner = _ParsedAnnotation.parse(arguments[0]), _ParsedAnnotation.parse(arguments[1])
        return spark.MapType(_type(key, where, around), _type(inner, where, around), inner.nullable)
    if origin is Literal:
        annotation = _common_type(arguments, where)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        annotation = _common_type(list(annotation), where)
    if isinstance(annotation, type):
        if annotation in around:
            raise TaskDefinitionError(
                f"{where}: {annotation.__name__} contains itself, and a column has a fixed depth; keep ids instead"
            )
        if issubclass(annotation, BaseModel):
            return _struct(annotation, around)
        if issubclass(annotation, decimal.Decimal):
            return _decimal(parsed.metadata, where)
        plain: list[tuple[type, DataType]] = [
            (bool, spark.BooleanType()),
            (int, spark.LongType()),
            (float, spark.DoubleType()),
            (str, spark.StringType()),
            (bytes, spark.BinaryType()),
            (AwareDatetime, spark.TimestampType()),
            (NaiveDatetime, spark.TimestampNTZType()),
            (PastDatetime, _any_timestamp()),
            (FutureDatetime, _any_timestamp()),
            (datetime.datetime, _any_timestamp()),
            (PastDate, spark.DateType()),
            (FutureDate, spark.DateType()),
            (datetime.date, spark.DateType()),
            (datetime.timedelta, spark.DayTimeIntervalType()),
        ]
        for python, found in plain:
            if issubclass(annotation, python):
                return found
    raise TaskDefinitionError(
        f"{where}: {annotation!r} has no column type in Spark; declare a StructType instead"
    )
