"""Reads a branch's history, newest first and one page at a time, and draws it as a graph.

    row           meaning
    publication   a commit that an attempt published
    replaced      an abandoned publication that was replaced: it is no longer on the branch, but a tag preserves it
    fence         Perago's commit that installed the fence
    other         any other commit

A replaced publication is shown right above the commit on which it was published.  A superseded publication stays on the
branch, and its row names the commit that supersedes it.  The row of a rebased publication says how many commits it was
rebased over, and a line connects it with the commit on which it was staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from perago.errors import LakeError
from perago.lake.base import Changes, Commit
from perago.protocol.metadata import KEY, REBASED_OVER, STAGING_BASE, SUPERSEDES
from perago.protocol.signing import Maker, maker_of
from perago.runtime.lake_lookup import replaced_commits
from perago.ui.data_source import DataSource

COMMITS = 30
_AT_ONCE = 8
FENCE_KEY = "perago-fence"
Kind = Literal["publication", "replaced", "fence", "other"]

LANE = 18
_MOST_LANES = 5
_TOP, _MIDDLE, _BOTTOM = 0, 50, 100


@dataclass(frozen=True, slots=True)
class Line:
    """A line in a row of the graph, as an SVG path.

    `kind` is `branch`, `replaced`, or `beside` for a line from a rebased commit to the one on which it was staged.
    """

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class RowDrawing:
    """The lines in a row, the horizontal position of its dot, and the total width."""

    lines: Sequence[Line] = ()
    dot: int = LANE // 2
    width: int = LANE


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A commit, shown as one row of a branch's history."""

    commit: Commit
    kind: Kind
    maker: Maker | None = None
    tag: str = ""
    superseded_by: str = ""
    supersedes: str = ""
    rebased_over: int = 0
    """The number of commits that this one was rebased over. Those commits were made after it was staged."""
    base: str = ""
    changes: Changes | None = None
    drawn: RowDrawing = field(default_factory=RowDrawing)


@dataclass(frozen=True, slots=True)
class History:
    """A page of a branch's commits, and the first commit of the next page."""

    rows: Sequence[HistoryRow]
    following: str | None
    tags_left_out: int = 0


def history_page(source: DataSource, repository: str, ref: str, count: int = COMMITS) -> History:
    """Return one page of commits, starting at `ref` and following first parents."""
    found = list(islice(source.lake.log(repository, ref, count + 1), count + 1))
    commits, following = found[:count], found[count].id if len(found) > count else None
    replaced, left_out = replaced_commits(
        source.lake, repository, {commit.id for commit in commits}, lambda id: source.commit(repository, id)
    )
    rows = [
        row
        for commit in commits
        for row in (*(row_of(one.commit, tag=one.tag) for one in replaced.get(commit.id, ())), row_of(commit))
    ]
    rows = _with_superseded(rows)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(
            pool.map(lambda row: replace(row, changes=changes_of(source, repository, row.commit)), rows)
        )
    return History(draw(rows, more=following is not None), following, left_out)


def row_of(commit: Commit, *, tag: str = "") -> HistoryRow:
    """Return the history row for a commit, based on the commit's metadata."""
    metadata = commit.metadata
    maker = maker_of(commit)
    kind: Kind = "publication" if maker else "fence" if metadata.get(KEY) == FENCE_KEY else "other"
    rebased_over = metadata.get(REBASED_OVER, "0")
    return HistoryRow(
        commit,
        "replaced" if tag else kind,
        maker,
        tag,
        supersedes=metadata.get(SUPERSEDES, ""),
        rebased_over=int(rebased_over) if rebased_over.isdecimal() else 0,
        base=metadata.get(STAGING_BASE, ""),
    )


def changes_of(source: DataSource, repository: str, commit: Commit) -> Changes | None:
    """Return a commit's changes from its first parent. Returns None if it has no parent, or if the lake fails."""
    if commit.first_parent is None:
        return None
    try:
        return source.count_changes(repository, commit.first_parent, commit.id)
    except LakeError:
        return None


def _with_superseded(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    """Return the rows, setting `superseded_by` in each publication that a later one from the same step supersedes."""
    later: dict[str, str] = {}
    done = []
    for row in rows:
        key = row.commit.metadata.get(KEY, "") if row.kind == "publication" else ""
        done.append(replace(row, superseded_by=later[key]) if key in later else row)
        if key and row.supersedes:
            later[key] = row.commit.id
    return done


def draw(rows: Sequence[HistoryRow], *, more: bool) -> list[HistoryRow]:
    """Return the rows, each with its lines in the graph. `more` says whether more rows follow on the next page.

    Lane 0 is the branch.  Each row is drawn separately, in a box 100 units high.  A line that leaves the box at the
    bottom continues at the top of the next one, whatever the height of the rows.
    """
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
    widest = _draw_rebase_lines(rows, lines)
    width = LANE * (1 + max(widest, *(int(row.kind == "replaced") for row in rows), 0)) if rows else LANE
    return [
        replace(row, drawn=RowDrawing(tuple(own), _across(1 if row.kind == "replaced" else 0), width))
        for row, own in zip(rows, lines, strict=True)
    ]


def _draw_rebase_lines(rows: Sequence[HistoryRow], lines: list[list[Line]]) -> int:
    """Add a line from each rebased commit to the one on which it was staged. Returns the highest lane used, or 0."""
    at = {row.commit.id: number for number, row in enumerate(rows)}
    ends: list[int] = []
    for number, row in enumerate(rows):
        if not row.rebased_over or not row.base:
            continue
        end = at.get(row.base, len(rows))
        # Find the first lane that is free from this row on, starting at 2: replaced publications use lane 1.
        lane = next((lane for lane, until in enumerate(ends) if until <= number), len(ends))
        if lane >= _MOST_LANES:
            continue
        ends[lane : lane + 1] = [end]
        lines[number].append(_bend(0, _MIDDLE, lane + 2, _BOTTOM, "beside"))
        for between in range(number + 1, min(end, len(rows))):
            lines[between].append(_down(lane + 2, _TOP, _BOTTOM, "beside"))
        if end < len(rows):
            lines[end].append(_bend(lane + 2, _TOP, 0, _MIDDLE, "beside"))
    return len(ends) + 1 if ends else 0


def _across(lane: int) -> int:
    return lane * LANE + LANE // 2


def _down(lane: int, start: int, end: int, kind: str) -> Line:
    return Line(f"M{_across(lane)} {start}V{end}", kind)


def _bend(start_lane: int, start: int, end_lane: int, end: int, kind: str) -> Line:
    one, two, middle = _across(start_lane), _across(end_lane), (start + end) // 2
    return Line(f"M{one} {start}C{one} {middle} {two} {middle} {two} {end}", kind)
