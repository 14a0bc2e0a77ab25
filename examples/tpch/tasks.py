"""The tasks: two writers of typed tables, a query, and a report.

The two writers run side by side and publish to one branch, since neither sees what the other writes.  Orders and their
lines are partitioned by year: a delivery with some years replaces exactly those.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field
from pyspark.sql import functions as F

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    WorkspaceSpec,
    require,
    require_file,
    require_foreign_key,
    require_rows,
    require_unique,
    task,
)

from .models import TABLES, LineItemOfYear, OrderOfYear

OWNER = "tpch@example.com"
PLACEMENT: Any = os.environ.get("TPCH_PLACEMENT", "auto")
CONTROLS = TaskControls(retry=RetryPolicy(count=2, delay_seconds=1), timeout=3600)
QUERIES = Path(__file__).parent / "queries"
BY_YEAR = {
    "orders": ("o_orderdate", "o_year", OrderOfYear),
    "lineitem": ("l_shipdate", "l_year", LineItemOfYear),
}
OTHERS = tuple(name for name in TABLES if name not in BY_YEAR)


class Load(BaseModel):
    pass


class Loaded(BaseModel):
    rows: dict[str, int]


def writes_beside(*tables: str) -> dict[str, Any]:
    """Return the fields of a workspace in which only these tables are written, side by side with others."""
    return {
        "reads": tuple(f"raw/{name}.csv" for name in tables),
        "writes": tuple(f"tables/{name}" for name in tables),
        "on_abandoned": "supersede",
        "on_advanced": "rebase",
        "placement": PLACEMENT,
    }


def load(workspace: SparkWorkspace, name: str) -> int:
    """Write a raw file as a typed table, by years if it has any, and return the number of rows."""
    rows = workspace.read(f"raw/{name}.csv", format="csv", schema=TABLES[name], header=True)
    target = f"tables/{name}"
    if name in BY_YEAR:
        day, year, model = BY_YEAR[name]
        by_year = rows.withColumn(year, F.year(day)).repartition(year)
        workspace.write(by_year, target, partition_by=year, mode="overwrite_partitions", schema=model)
    else:
        workspace.write(rows, target, schema=TABLES[name])
    return workspace.read(target).count()


@task(
    name="tpch_load_orders",
    description="Writes orders and their lines, partitioned by year.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        **writes_beside(*BY_YEAR),
        post=[
            require_unique("tables/orders", "o_orderkey"),
            require_foreign_key("tables/lineitem", "l_orderkey", "tables/orders", "o_orderkey"),
            require("tables/lineitem", "l_quantity > 0 AND l_discount BETWEEN 0 AND 1"),
            require("tables/lineitem", "l_receiptdate > l_shipdate"),
        ],
    ),
    controls=CONTROLS,
)
def load_orders(workspace: SparkWorkspace, params: Load) -> Loaded:
    return Loaded(rows={name: load(workspace, name) for name in BY_YEAR})


@task(
    name="tpch_load_others",
    description="Writes customers, parts, suppliers, nations and regions.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        **writes_beside(*OTHERS),
        post=[
            require_rows("tables/region", 5, 5),
            require_rows("tables/nation", 25, 25),
            require_unique("tables/partsupp", "ps_partkey", "ps_suppkey"),
            require_foreign_key("tables/partsupp", "ps_partkey", "tables/part", "p_partkey"),
        ],
    ),
    controls=CONTROLS,
)
def load_others(workspace: SparkWorkspace, params: Load) -> Loaded:
    return Loaded(rows={name: load(workspace, name) for name in OTHERS})


class Query(BaseModel):
    number: int = Field(ge=1, le=22)


class Answered(BaseModel):
    title: str
    rows: int


@task(
    name="tpch_query",
    description="Writes the answer of one of the 22 queries.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        reads=("tables",),
        writes=("answers",),
        on_abandoned="supersede",
        on_advanced="rebase",
        placement=PLACEMENT,
    ),
    controls=CONTROLS,
)
def query(workspace: SparkWorkspace, params: Query) -> Answered:
    for name in TABLES:
        workspace.read(f"tables/{name}").createOrReplaceTempView(name)
    title, text = read_query(params.number)
    answer = f"answers/q{params.number:02}"
    workspace.write(workspace.spark.sql(text).coalesce(1), answer)
    return Answered(title=title, rows=workspace.read(answer).count())


def read_query(number: int) -> tuple[str, str]:
    """Return a query's title, which is its first line, and its text."""
    text = (QUERIES / f"q{number:02}.sql").read_text()
    return text.partition("\n")[0].removeprefix("-- "), text


class Report(BaseModel):
    numbers: list[int]
    titles: list[str]


class Reported(BaseModel):
    rows: int


@task(
    name="tpch_report",
    description="Writes the first rows of all answers to one page.",
    owner_email=OWNER,
    workspace=WorkspaceSpec(
        reads=("answers",), writes=("report.md",), on_abandoned="supersede", post=[require_file("report.md")]
    ),
    controls=CONTROLS,
)
def report(workspace: Path, params: Report) -> Reported:
    page, rows = ["# TPC-H"], 0
    for number, title in zip(params.numbers, params.titles, strict=True):
        answer = pd.read_parquet(workspace / f"answers/q{number:02}")
        rows += len(answer)
        page += [
            "",
            f"## {number}. {title}",
            "",
            f"{len(answer)} rows",
            "",
            "```",
            answer.head(5).to_string(),
            "```",
        ]
    (workspace / "report.md").write_text("\n".join(page) + "\n")
    return Reported(rows=rows)
