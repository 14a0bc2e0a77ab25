"""Converts pydantic models to the rows of a table, and back.

Every type that Spark and pydantic share comes back as it was.  `perago.spark.schema` says which column each has.

    a timestamp              keeps its instant and comes back in UTC: Spark stores no zone
    a timestamp_ntz          keeps its date and time, and has no zone
    a decimal                keeps its value, or is refused: Spark would round it
    a set, a tuple           are arrays in the table
    an enum                  is its value in the table
"""

from __future__ import annotations

import datetime
import decimal
import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, RootModel, ValidationError
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from perago.errors import GuardrailViolation
from perago.spark.schema import declared_schema, differences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Model = TypeVar("Model", bound=BaseModel)

_WIDE = decimal.Context(prec=100)
_LONGEST_INTERVAL = datetime.timedelta(microseconds=2**63 - 1)


def frame_of_models(spark: SparkSession, models: Iterable[Model], schema: type[Model]) -> DataFrame:
    """Return a DataFrame with one row for each model. Raises `GuardrailViolation` for a value that no column can hold."""
    # Through JSON, because a declared type may be marked as standing for several.
    struct = StructType.fromJson(declared_schema(schema).struct.jsonValue())
    return spark.createDataFrame([_stored(model, struct, schema.__name__) for model in models], struct)


def models_in_frame(df: DataFrame, schema: type[Model]) -> list[Model]:
    """Return the rows as models. Raises `GuardrailViolation` if columns or values do not fit the model."""
    problems = differences(declared_schema(schema), df.schema, lambda _name: False)
    if problems:
        raise GuardrailViolation(f"the rows are not as {schema.__name__} declares: {'; '.join(problems)}")
    kind, found = df.schema, []
    for number, row in enumerate(df.collect(), 1):
        try:
            found.append(schema.model_validate(_loaded(row, kind), strict=False, by_name=True))
        except ValidationError as error:
            why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise GuardrailViolation(f"row {number} is not a {schema.__name__}: {why}") from None
    return found


def _stored(value: Any, kind: DataType, where: str) -> Any:
    """Return a model's value in the form in which PySpark stores it in a column of this type."""
    while isinstance(value, enum.Enum | RootModel):
        value = value.value if isinstance(value, enum.Enum) else value.root
    match value, kind:
        case BaseModel(), StructType():
            return tuple(
                _stored(getattr(value, field.name), field.dataType, f"{where}.{field.name}")
                for field in kind.fields
            )
        case Mapping(), MapType():
            return {
                _stored(key, kind.keyType, where): _stored(one, kind.valueType, where)
                for key, one in value.items()
            }
        case ((list() | tuple() | set() | frozenset()), ArrayType()):
            return [_stored(one, kind.elementType, where) for one in value]
        case datetime.datetime(), TimestampType() if value.utcoffset() is None:
            raise GuardrailViolation(
                f"{where} holds {value} without a time zone; give it one, or declare it as NaiveDatetime"
            )
        case datetime.datetime(), TimestampNTZType() if value.utcoffset() is not None:
            raise GuardrailViolation(f"{where} holds {value} with a time zone; declare it as AwareDatetime")
        case datetime.datetime(), TimestampType():
            _check_instant(value, where)
        case decimal.Decimal(), DecimalType():
            _check_fits(value, kind, where)
        case int(), LongType() if not -(2**63) <= value < 2**63:
            raise GuardrailViolation(
                f"{where} holds {value}, which {kind.simpleString()} cannot; declare it as str"
            )
        case datetime.timedelta(), DayTimeIntervalType() if abs(value) > _LONGEST_INTERVAL:
            raise GuardrailViolation(f"{where} holds {value}, which {kind.simpleString()} cannot")
    return value


def _check_instant(value: datetime.datetime, where: str) -> None:
    try:
        value.astimezone(datetime.UTC)
    except OverflowError:
        raise GuardrailViolation(
            f"{where} holds {value}, which is outside the years 1 to 9999 in UTC"
        ) from None


def _check_fits(value: decimal.Decimal, kind: DecimalType, where: str) -> None:
    if value.is_zero():
        return
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    fits = value.is_finite() and value.adjusted() < kind.precision - kind.scale
    if not fits or value.quantize(unit, context=_WIDE) != value:
        raise GuardrailViolation(
            f"{where} holds {value}, which {kind.simpleString()} cannot; declare max_digits and decimal_places that fit"
        )


def _loaded(value: Any, kind: DataType) -> Any:
    """Return what PySpark read from a column of this type in the form in which a model takes it."""
    match value, kind:
        case None, _:
            return None
        case _, StructType():
            return {
                name: _loaded(one, field.dataType)
                for name, one, field in zip(kind.names, value, kind.fields, strict=True)
            }
        case _, ArrayType():
            return [_loaded(one, kind.elementType) for one in value]
        case _, MapType():
            return {_loaded(key, kind.keyType): _loaded(one, kind.valueType) for key, one in value.items()}
        case _, TimestampType():
            # PySpark leaves out the zone, which is this machine's.
            return value.astimezone(datetime.UTC)
    return value
