"""Models become rows and come back as they were, in every format that the documentation says so of."""

from __future__ import annotations

import enum
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    NaiveDatetime,
    PastDate,
    PastDatetime,
    RootModel,
    create_model,
)
from typing_extensions import TypeAliasType

from perago import GuardrailViolation, SparkWorkspace, TaskDefinitionError
from perago.spark.schema import declared_schema
from perago.spark.session import Sessions

PAGE = Path(__file__).parents[2] / "docs" / "spark-tasks.md"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Level(enum.Enum):
    LOW = 1
    HIGH = 10


class Point(BaseModel):
    x: float
    y: float


NAMES: dict[str, Any] = {
    "Annotated": Annotated,
    "AwareDatetime": AwareDatetime,
    "Colour": Colour,
    "Decimal": Decimal,
    "Field": Field,
    "Level": Level,
    "Literal": Literal,
    "NaiveDatetime": NaiveDatetime,
    "Point": Point,
    "Size": Size,
    "date": date,
    "datetime": datetime,
    "timedelta": timedelta,
}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
LONGS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
AWARE = st.datetimes(datetime(1600, 1, 2), datetime(9999, 12, 30), timezones=ZONES)
POINTS = st.builds(Point, x=FLOATS, y=FLOATS)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": LONGS,
    "float": FLOATS,
    "str": TEXT,
    "bytes": st.binary(max_size=20),
    "Decimal": st.decimals(-(10**20) + 1, 10**20 - 1, places=18),
    "Annotated[Decimal, Field(max_digits=15, decimal_places=2)]": st.decimals(
        -(10**13) + 1, 10**13 - 1, places=2
    ),
    "date": st.dates(date(1600, 1, 1)),
    "AwareDatetime": AWARE,
    "NaiveDatetime": st.datetimes(datetime(1600, 1, 1)),
    "datetime": AWARE,
    "timedelta": st.timedeltas(timedelta(days=-1_000_000), timedelta(days=1_000_000)),
    "Colour": st.sampled_from(Colour),
    "Size": st.sampled_from(Size),
    "Level": st.sampled_from(Level),
    'Literal["in", "out"]': st.sampled_from(["in", "out"]),
    "str | None": TEXT | st.none(),
    "list[int]": st.lists(LONGS, max_size=3),
    "set[str]": st.sets(TEXT, max_size=3),
    "tuple[date, ...]": st.lists(st.dates(date(1600, 1, 1)), max_size=3).map(tuple),
    "list[AwareDatetime | None]": st.lists(AWARE | st.none(), max_size=3),
    "dict[str, int]": st.dictionaries(TEXT, LONGS, max_size=3),
    "dict[date, Point]": st.dictionaries(st.dates(date(1600, 1, 1)), POINTS, max_size=3),
    "Point": POINTS,
    "list[Point]": st.lists(POINTS, max_size=3),
}


def table() -> list[tuple[str, str, dict[str, str]]]:
    """The page's table of types: annotation, column type, and what each format keeps."""
    lines = PAGE.read_text().split("## Types\n")[1].split("\n## ")[0].splitlines()
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line[:1] == "|"
    ]
    heads = rows[0][2:]
    return [
        (
            one.strip("`").replace("\\|", "|"),
            two.strip("`"),
            {name: cell for head, cell in zip(heads, more, strict=True) for name in head.lower().split(", ")},
        )
        for one, two, *more in rows[2:]
    ]


TABLE = table()


def test_the_page_lists_every_type_with_the_column_that_it_has() -> None:
    assert [annotation for annotation, _, _ in TABLE] == list(VALUES)
    for annotation, column, _ in TABLE:
        model = create_model("Row", value=(eval(annotation, NAMES), ...))
        assert declared_schema(model).struct["value"].dataType.simpleString() == column, annotation


@pytest.fixture(scope="module")
def workspace(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> SparkWorkspace:
    return SparkWorkspace(tmp_path_factory.mktemp("types"), sessions.get())


def keeps(format: str) -> list[str]:
    """The types whose values a format keeps, as the page says."""
    return [annotation for annotation, _, kept in TABLE if kept[format] == "kept"]


@pytest.mark.parametrize("format", ["parquet", "orc", "json", "csv"])
def test_every_type_that_a_format_keeps_comes_back_as_it_was(workspace: SparkWorkspace, format: str) -> None:
    kept = keeps(format)
    fields: dict[str, Any] = {f"c{n}": (eval(one, NAMES), ...) for n, one in enumerate(kept)}
    model = create_model("Row", **fields)
    rows = st.builds(model, **{f"c{n}": VALUES[one] for n, one in enumerate(kept)})

    @settings(
        max_examples=3,
        phases=[Phase.generate],  # shrinking would run hundreds of Spark jobs
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(rows, min_size=20, max_size=40))
    def round_trip(models: list[BaseModel]) -> None:
        df = workspace.from_models(models, model).coalesce(1)
        workspace.write(df, format, format, schema=model)
        assert workspace.to_models(workspace.read(format, format, schema=model), model) == models

    round_trip()


ZONE_AHEAD = timezone(timedelta(hours=14))


class Row(BaseModel):
    at: datetime = datetime(2026, 11, 18, tzinfo=UTC)
    price: Decimal = Decimal(1)
    small: Annotated[Decimal, Field(max_digits=5, decimal_places=2)] = Decimal(1)
    count: int = 1
    took: timedelta = timedelta(1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Row(at=datetime(2026, 11, 18)), "Row.at holds 2026-11-18 00:00:00 without a time zone"),
        (Row(price=Decimal("1e-19")), r"Row.price holds 1E-19, which decimal\(38,18\) cannot"),
        (Row(price=Decimal(10**20)), r"Row.price holds 1\d+, which decimal\(38,18\) cannot"),
        (Row(count=2**63), "Row.count holds 9223372036854775808, which bigint cannot"),
        (Row(took=timedelta.max), "Row.took holds 999999999 days, .*, which interval day to second cannot"),
        (
            Row(at=datetime(1, 1, 1, tzinfo=ZONE_AHEAD)),
            "Row.at holds .*, which is outside the years 1 to 9999",
        ),
        (Row.model_construct(small=Decimal("NaN")), r"Row.small holds NaN, which decimal\(5,2\) cannot"),
    ],
)
def test_a_value_that_spark_would_change_is_refused(workspace: SparkWorkspace, wrong: Row, says: str) -> None:
    with pytest.raises(GuardrailViolation, match=says):
        workspace.from_models([Row(), wrong], Row)


@pytest.mark.parametrize("zero", ["0E+30", "-0", "0E-30"])
def test_every_zero_fits(workspace: SparkWorkspace, zero: str) -> None:
    rows = [Row(price=Decimal(zero), small=Decimal(zero))]

    assert workspace.to_models(workspace.from_models(rows, Row), Row) == rows


class Aware(BaseModel):
    at: AwareDatetime


class Naive(BaseModel):
    at: NaiveDatetime


class Either(BaseModel):
    at: datetime


def test_a_column_fits_only_the_kind_of_timestamp_that_is_declared(workspace: SparkWorkspace) -> None:
    with_zone, without = (
        workspace.spark.sql(f"SELECT CAST('2026-11-18 10:00:00' AS {kind}) AS at")
        for kind in ("TIMESTAMP", "TIMESTAMP_NTZ")
    )
    noon = datetime(2026, 11, 18, 10)

    assert workspace.to_models(with_zone, Aware) == [Aware(at=noon.replace(tzinfo=UTC))]
    assert workspace.to_models(with_zone, Either) == [Either(at=noon.replace(tzinfo=UTC))]
    assert workspace.to_models(without, Naive) == [Naive(at=noon)]
    assert workspace.to_models(without, Either) == [Either(at=noon)]
    for df, model in ((without, Aware), (with_zone, Naive)):
        with pytest.raises(
            GuardrailViolation, match=f"not as {model.__name__} declares: column 'at' is timestamp"
        ):
            workspace.to_models(df, model)


class Named(BaseModel):
    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(alias="Name", min_length=2)]
    sizes: frozenset[Size] = frozenset()


def test_rows_are_checked_and_named_by_number_without_their_values(workspace: SparkWorkspace) -> None:
    df = workspace.spark.sql(
        "SELECT name, array(1, 2) AS sizes FROM VALUES ('ok'), ('x') AS t(name)"
    ).coalesce(1)

    assert workspace.to_models(df.where("name = 'ok'"), Named) == [Named(Name="ok", sizes=frozenset(Size))]
    with pytest.raises(GuardrailViolation) as refused:
        workspace.to_models(df, Named)
    assert str(refused.value) == "row 2 is not a Named: name: String should have at least 2 characters"


SongId = NewType("SongId", int)
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Tags(RootModel[list[Colour]]): ...


class Aliased(BaseModel):
    id: SongId
    tags: Tags | None
    by_id: dict[SongId, Tags]
    released: PastDate
    heard: PastDatetime


def test_types_with_names_of_their_own_are_those_that_they_stand_for(workspace: SparkWorkspace) -> None:
    tags = Tags([Colour.RED])
    models = [
        Aliased(id=SongId(1), tags=tags, by_id={SongId(1): tags}, released=date(1959, 8, 17), heard=NOON),
        Aliased(id=SongId(2), tags=None, by_id={}, released=date(1957, 9, 15), heard=NOON),
    ]
    workspace.write(workspace.from_models(models, Aliased).coalesce(1), "named", schema=Aliased)

    found = workspace.read("named", schema=Aliased)

    assert workspace.to_models(found, Aliased) == models
    assert dict(found.dtypes)["by_id"] == "map<bigint,array<string>>"


class Tree(BaseModel):
    children: list[Tree]


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (tuple[int, str], "holds several types; declare a model for it"),
        (Mixed, "its values have several types"),
        (Literal["a", 1], "its values have several types"),
        (TypeAliasType("Pair", tuple[int, str]), "holds several types"),
    ],
)
def test_what_no_column_can_hold_is_refused_by_name(annotation: Any, says: str) -> None:
    with pytest.raises(TaskDefinitionError, match=rf"Odd\.value: .*{says}"):
        declared_schema(create_model("Odd", value=(annotation, ...)))


def test_a_model_that_contains_itself_is_refused_by_name() -> None:
    with pytest.raises(TaskDefinitionError, match=r"Tree\.children: Tree contains itself"):
        declared_schema(create_model("Row", trees=(dict[str, Tree], ...)))


def test_a_literal_with_none_may_be_null() -> None:
    model = create_model("Row", value=(Literal["a", None], ...))
    assert declared_schema(model).struct["value"].nullable
