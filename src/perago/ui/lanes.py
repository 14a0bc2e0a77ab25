"""How a history is drawn: a dot for each row, and lines from row to row, in lanes.

Lane 0 is the branch.  Each row is drawn alone, in a box 100 high: a line that leaves it at the bottom goes on at the top of
the next one, whatever height the rows get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.ui.history import Row

LANE = 18
_MOST_LANES = 5
_TOP, _MIDDLE, _BOTTOM = 0, 50, 100


@dataclass(frozen=True, slots=True)
class Line:
    """A line inside a row, as an SVG path; `kind` is `branch`, `replaced` or `beside`."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A row's lines, its dot's place across, and how wide all of it is."""

    lines: Sequence[Line] = ()
    dot: int = LANE // 2
    width: int = LANE


def draw(rows: Sequence[Row], *, more: bool) -> list[Row]:
    """The rows with their lines; `more` rows follow on another page."""
    lines: list[list[Line]] = [[] for _ in rows]
    on_branch = [number for number, row in enumerate(rows) if row.kind != "replaced"]
    for number, row in enumerate(rows):
        if row.kind == "replaced":
            lines[number] += [_down(0, _TOP, _BOTTOM, "branch")] if on_branch[0] < number else []
            lines[number].append(_bend(1, _MIDDLE, 0, _BOTTOM, "replaced"))
            continue
        top = _MIDDLE if number == on_branch[0] else _TOP
        bottom = _MIDDLE if number == on_branch[-1] and not more else _BOTTOM
        if top != bottom:
            lines[number].append(_down(0, top, bottom, "branch"))
    widest = _beside(rows, lines)
    width = LANE * (1 + max(widest, *(int(row.kind == "replaced") for row in rows), 0)) if rows else LANE
    return [
        replace(row, drawn=Drawn(tuple(own), _across(1 if row.kind == "replaced" else 0), width))
        for row, own in zip(rows, lines, strict=True)
    ]


def _beside(rows: Sequence[Row], lines: list[list[Line]]) -> int:
    """A line from each commit that was published beside others to the one it was staged on; the lanes it took."""
    at = {row.commit.id: number for number, row in enumerate(rows)}
    taken: list[int] = []
    for number, row in enumerate(rows):
        if not row.passed or not row.base:
            continue
        end = at.get(row.base, len(rows))
        # The first lane that is free from here on; lane 1 is also that of what was replaced.
        lane = next((lane for lane, until in enumerate(taken) if until <= number), len(taken))
        if lane >= _MOST_LANES:
            continue
        taken[lane : lane + 1] = [end]
        lines[number].append(_bend(0, _MIDDLE, lane + 2, _BOTTOM, "beside"))
        for between in range(number + 1, min(end, len(rows))):
            lines[between].append(_down(lane + 2, _TOP, _BOTTOM, "beside"))
        if end < len(rows):
            lines[end].append(_bend(lane + 2, _TOP, 0, _MIDDLE, "beside"))
    return len(taken) + 1 if taken else 0


def _across(lane: int) -> int:
    return lane * LANE + LANE // 2


def _down(lane: int, start: int, end: int, kind: str) -> Line:
    return Line(f"M{_across(lane)} {start}V{end}", kind)


def _bend(start_lane: int, start: int, end_lane: int, end: int, kind: str) -> Line:
    one, two, middle = _across(start_lane), _across(end_lane), (start + end) // 2
    return Line(f"M{one} {start}C{one} {middle} {two} {middle} {two} {end}", kind)
