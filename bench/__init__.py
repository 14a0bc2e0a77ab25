"""Benchmarks: ratios measured in one run on one machine, and never asserted in a test.

    python -m bench [NAME…]     run benches (default: all), add their rows to bench/results.json, write bench/RESULTS.md
    python -m bench report      write bench/RESULTS.md from bench/results.json

    python -m bench NAME@KIND   run one bench on one kind of servers only (see `kinds`)

A bench is a module in `BENCHES` with `NAME`, `SERVERS` (whether it needs dev/servers), `KINDS` if it runs on servers
other than the trial ones, and `run() -> list[Row]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BENCHES = (
    "attempt_local",
    "narrow_attempt",
    "side_by_side",
    "lake_local",
    "lake_lakefs",
    "transfer_ways",
    "worker",
    "server_calls",
    "run_transaction",
    "only_changed",
    "spark_tasks",
    "tpch",
    "page",
    "map_rows",
    "demo",
)


@dataclass(frozen=True, slots=True)
class Row:
    """A measured figure. `goal` is its bound in the same unit, either a ceiling or a floor."""

    what: str
    value: float
    unit: str
    goal: float | None = None
    bound: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool | None:
        """True if the goal is met, None if there is no goal."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.bound == "at most" else self.value >= self.goal
