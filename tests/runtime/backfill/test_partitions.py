"""The rows that `--over` and `--param` give, and the command lines that are refused before anything runs."""

from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, model_validator

from perago import WorkspaceSpec, task
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.protocol.ledger import EntryKey
from perago.protocol.view import View
from perago.runtime.backfill.partitions import MOST_ROWS, check_task, partitions_of, refuse_overlaps
from perago.runtime.backfill.status import names_in
from tests.support.worlds.world import make_task


class Region(Enum):
    EU = "eu"
    US = "us"


class Sales(BaseModel):
    day: date = date(2026, 1, 1)
    hour: int = 0
    region: Region = Region.EU
    kind: Literal["web", "shop"] = "web"
    store: str = "all"
    currency: str = Field(default="EUR", alias="money")
    rounded: bool = False


class Done(BaseModel):
    ok: bool = True


FIELDS = ("day", "hour", "region", "kind", "store", "currency")


def sales_task(
    model: type[BaseModel] = Sales, names: tuple[str, ...] = FIELDS, **spec: Any
) -> TaskDefinition:
    """Return a task whose paths name these params."""
    path = "/".join(f"{name}={{{name}}}" for name in names)
    given = {"reads": (f"raw/{path}",), "writes": (f"clean/{path}",), **spec}

    @task(name="sales", owner_email="tests@example.com", workspace=WorkspaceSpec(**given))
    def sales(workspace: Path, params: model) -> Done:  # type: ignore[valid-type]
        return Done()

    definition: TaskDefinition = sales.__perago_task__
    return definition


def rows(*over: str, params: tuple[str, ...] = (), of: TaskDefinition | None = None) -> list[Any]:
    return [one.params for one in partitions_of(of or sales_task(), over, params)]


class TestValues:
    @pytest.mark.parametrize(
        ("given", "values"),
        [
            ("day=2026-02-27..2026-03-01", ["2026-02-27", "2026-02-28", "2026-03-01"]),
            ("day=2026-01-02", ["2026-01-02"]),
            ("day=2026-01-02,2025-12-31..2026-01-02", ["2025-12-31", "2026-01-01", "2026-01-02"]),
            ("hour=-1..2", [-1, 0, 1, 2]),
            ("hour=3,1,9..10", [1, 3, 9, 10]),
            ("hour=007", [7]),
            ("region=us,eu,us", ["eu", "us"]),
            ("kind=shop", ["shop"]),
            ("store=b,a b,007", ["007", "a b", "b"]),
        ],
    )
    def test_are_ranges_and_lists_in_order(self, given: str, values: list[Any]) -> None:
        name = given.partition("=")[0]
        assert rows(given) == [{name: value} for value in values]

    def test_every_combination_is_a_row_and_the_last_name_varies_fastest(self) -> None:
        found = rows("day=2026-01-01..2026-01-02", "region=eu,us", params=("rounded=true", "money=USD"))

        fixed = {"rounded": True, "money": "USD"}
        assert found == [
            {**fixed, "day": day, "region": region}
            for day in ("2026-01-01", "2026-01-02")
            for region in ("eu", "us")
        ]

    def test_a_partition_has_all_names_of_the_templates_defaults_included(self) -> None:
        [one] = partitions_of(sales_task(), ["region=us"])

        assert str(one) == "day=2026-01-01, hour=0, region=us, kind=web, store=all, currency=EUR"
        assert one.view.write_roots == (
            "clean/day=2026-01-01/hour=0/region=us/kind=web/store=all/currency=EUR",
        )

    def test_a_name_with_an_alias_is_sent_by_the_alias(self) -> None:
        assert rows("currency=EUR,USD") == [{"money": "EUR"}, {"money": "USD"}]


class TestRefusals:
    @pytest.mark.parametrize(
        ("over", "params", "said"),
        [
            ((), (), "say which partitions, such as --over day="),
            (("day",), (), "--over day is not NAME=VALUES"),
            (("dya=2026-01-01",), (), r"--over dya: is not a param; did you mean 'day'\?"),
            (
                ("rounded=true",),
                (),
                r"--over rounded: no path of the task names it .*give it with --param rounded=",
            ),
            (("hour=1", "hour=2"), (), "--over hour is given twice"),
            (("hour=1",), ("hour=2",), "hour is given with --over and with --param"),
            (
                ("day=2026-01-02..2026-01-01",),
                (),
                r"the range 2026-01-02\.\.2026-01-01 is empty: .*; swap them",
            ),
            (("hour=2..1",), (), "is empty"),
            (("hour=",), (), "'' is not a whole number"),
            (("hour=1..",), (), r"'1\.\.' is not a whole number"),
            (("hour=..3",), (), r"'\.\.3' is not a whole number"),
            (("hour=1...3",), (), "is not a whole number"),
            (("hour=1.5",), (), "is not a whole number"),
            (("hour=" + "9" * 300,), (), "is not a whole number"),
            (("day=2026-02-30",), (), "'2026-02-30' is not a date such as 2026-01-31"),
            (("day=20260101",), (), "is not a date"),
            (("day=x..y",), (), "is not a date"),
            (("region=eu,uss",), (), r"'uss' is not one of eu, us; did you mean 'us'\?"),
            (("region=EU",), (), "'EU' is not one of eu, us"),
            (("store=a..c",), (), "looks like a range, and text has none"),
            (("store=a,,b",), (), "a value is empty"),
            (("store=.hidden",), (), "must not begin with"),
            (("store=_x",), (), "must not begin with"),
            (("store=a\nb",), (), "must not hold control characters"),
            (("store=a}b",), (), "must not hold '}'"),
            (("store=" + "x" * 201,), (), "must not be longer than 200 bytes"),
            (("store=__HIVE_DEFAULT_PARTITION__",), (), "must not begin with"),
            (("hour=1",), ("rouned=true",), r"--param rouned: is not a param; did you mean 'rounded'\?"),
            (("hour=1",), ("rounded",), "--param rounded is not NAME=VALUE"),
            (("hour=1",), ("rounded=true", "rounded=false"), "--param rounded is given twice"),
            (("hour=1",), ("rounded=perhaps",), "params.rounded: got a string"),
            (("hour=1",), ("currency=EUR",), "--param currency: is not a param"),
        ],
    )
    def test_are_one_line_with_a_remedy(
        self, over: tuple[str, ...], params: tuple[str, ...], said: str
    ) -> None:
        with pytest.raises(RuntimeConfigError, match=said) as refused:
            rows(*over, params=params)
        assert "\n" not in str(refused.value)

    def test_more_rows_than_the_limit_are_refused_before_they_are_made(self) -> None:
        with pytest.raises(RuntimeConfigError, match=f"has more than {MOST_ROWS:,} values"):
            rows("hour=0..999999999999")
        with pytest.raises(RuntimeConfigError, match="gives 40,000,000 rows, and a backfill has at most"):
            rows("hour=1..20000", "store=" + ",".join(f"s{number}" for number in range(2000)))

    def test_a_required_param_that_is_missing_names_the_option(self) -> None:
        class Needs(BaseModel):
            day: date
            hour: int
            source: str

        of = sales_task(Needs, ("day", "hour"))
        with pytest.raises(
            RuntimeConfigError, match=r"param 'hour' is missing: give it with --over hour=…, or --param"
        ):
            rows("day=2026-01-01", of=of)
        with pytest.raises(
            RuntimeConfigError, match="param 'source' is missing: give it with --param source=…"
        ):
            rows("day=2026-01-01", "hour=1", of=of)

    def test_a_row_that_the_authors_validator_refuses_is_named(self) -> None:
        class Odd(BaseModel):
            hour: int

            @model_validator(mode="after")
            def check(self) -> Odd:
                if self.hour == 2:
                    raise ValueError("two is taken")
                return self

        with pytest.raises(RuntimeConfigError, match=r"hour=2: params does not fit Odd: .*two is taken"):
            rows("hour=1..3", of=sales_task(Odd, ("hour",)))

    def test_a_task_without_templates_or_that_only_reads_is_refused(self) -> None:
        with pytest.raises(RuntimeConfigError, match="has no partitions: name a param in its paths"):
            check_task(make_task(), "perago backfill")
        with pytest.raises(RuntimeConfigError, match="only reads"):
            check_task(make_task(reads=("{text}",), read_only=True), "perago backfill")


REBASE: dict[str, Any] = {"on_abandoned": "supersede", "on_advanced": "rebase"}


class TestRowsBesideEachOther:
    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"writes": ("total",)}, "both would write 'total'; name the params of --over in writes"),
            ({"writes": ("clean/{region}", "clean/eu/{store}")}, "both would write"),
            ({"reads": ("clean",), **REBASE}, "which the second sees; with on_advanced"),
            ({"reads": ("raw/{region}", "clean/us"), **REBASE}, "which the second sees"),
            ({"reads": None, **REBASE}, "which the second sees"),
        ],
    )
    def test_rows_that_get_into_each_others_way_are_refused(self, spec: dict[str, Any], said: str) -> None:
        of = sales_task(names=("region",), **{"writes": ("clean/{region}",), **spec})
        over = ["region=eu,us"] + (["store=x,us"] if "{store}" in str(spec) else [])
        with pytest.raises(RuntimeConfigError, match=said):
            refuse_overlaps(of.workspace, partitions_of(of, over))  # type: ignore[arg-type]

    def test_rows_that_only_share_what_they_read_or_run_in_order_are_not(self) -> None:
        shared = sales_task(names=("region",), reads=("raw/{region}", "config"), **REBASE)
        chained = sales_task(names=("region",), reads=("clean",))
        for of in (shared, chained):
            refuse_overlaps(of.workspace, partitions_of(of, ["region=eu,us"]))  # type: ignore[arg-type]


class TestNamesInAnEntry:
    def test_are_read_back_from_its_paths(self) -> None:
        of = sales_task()
        spec = of.workspace
        assert spec is not None
        for one in partitions_of(of, ["store=a b,x%2Fy,ü,a=b,a/b", "region=eu,us"]):
            assert names_in(spec, one.work.key) == one.names

    def test_an_entry_of_other_paths_has_none(self) -> None:
        spec = sales_task(names=("region",)).workspace
        assert spec is not None
        view = View("", ("raw/region=eu",), ("clean/region=us",))
        assert names_in(spec, EntryKey.of("sales", view, {})) is None
        assert names_in(spec, EntryKey.of("sales", View(""), {})) is None
