"""The report: a chart and a page, in plain Python, from the day-by-day summary."""

from __future__ import annotations

import csv
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Day = Mapping[str, str]


def read_summary(folder: Path) -> list[Day]:
    """Return the rows of the summary, in order."""
    rows: list[Day] = []
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as text:
            rows += csv.DictReader(text)
    return sorted(rows, key=lambda row: (row["day"], row["genre"]))


def draw(rows: Sequence[Day], target: Path) -> None:
    """Draw the hours listened each day, stacked by genre."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    days = sorted({row["day"] for row in rows})
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    below = [0.0] * len(days)
    for genre in sorted({row["genre"] for row in rows}):
        of_day = {row["day"]: int(row["ms"]) / 3_600_000 for row in rows if row["genre"] == genre}
        hours = [of_day.get(day, 0.0) for day in days]
        axes.bar(range(len(days)), hours, bottom=below, label=genre)
        below = [low + high for low, high in zip(below, hours, strict=True)]
    axes.set_xticks(range(len(days)), [day[5:] for day in days], rotation=90)
    axes.set_ylabel("hours listened")
    axes.set_title("Listening by day and genre")
    figure.legend(loc="outside lower center", ncols=6)
    FigureCanvasAgg(figure).print_png(str(target), metadata={"Software": None})


def page(rows: Sequence[Day], facts: Mapping[str, Any]) -> str:
    """Return the page around the chart."""
    rejects = ", ".join(f"{count} {html.escape(fault)}" for fault, count in facts["rejects"].items())
    lines = "\n".join(
        f"<tr><td>{html.escape(row['day'])}</td><td>{html.escape(row['genre'])}</td>"
        f"<td>{row['plays']}</td><td>{row['listeners']}</td></tr>"
        for row in rows
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Listening</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto }}
td, th {{ padding: 0 1em 0 0; text-align: left }}
</style>
<h1>Listening</h1>
<p>{facts["plays"]} plays of {facts["songs"]} songs by {facts["users"]} users.
Rejected: {rejects}, {facts["rejected_percent"]} percent in all.</p>
<p>Two steps made the rest of it beside each other and published to one branch: one the {facts["sessions"]} sessions, the
other the counts of {facts["days"]} days.</p>
<p><img src="chart.png" alt="Hours listened each day, by genre" style="max-width: 100%"></p>
<table>
<tr><th>day</th><th>genre</th><th>plays</th><th>listeners</th></tr>
{lines}
</table>
</html>
"""
