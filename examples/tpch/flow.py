"""The workflow: two writers side by side, the queries one after the other, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perago.workflow import INPUT_WORKSPACE, Step, fork, given, new_workflow, step

from .tasks import OWNER, Answered, Load, Query, Report, load_orders, load_others, query, report


def tpch_workflow(name: str, numbers: Sequence[int]) -> Any:
    """Return a workflow that loads the tables, answers these queries, and reports on them."""
    orders = step(load_orders, "load_orders", workspace=INPUT_WORKSPACE, params=Load())
    others = step(load_others, "load_others", workspace=INPUT_WORKSPACE, params=Load())
    queries: list[Step[Answered]] = []
    for number in numbers:
        start = queries[-1].workspace if queries else [orders.workspace, others.workspace]
        queries.append(step(query, f"q{number:02}", workspace=start, params=Query(number=number)))
    titles = given(Report, numbers=list(numbers), titles=[one.result.title for one in queries])
    page = step(report, "report", workspace=queries[-1].workspace, params=titles)
    return new_workflow(
        name,
        fork("load", [orders], [others]),
        *queries,
        page,
        owner_email=OWNER,
        description="TPC-H: typed tables from raw files, queries, a report.",
        output={"rows": page.result.rows, "ref": page.workspace.ref},
    )


tpch = tpch_workflow("tpch", range(1, 23))
tpch_few = tpch_workflow("tpch_few", (1, 6, 13, 18))
