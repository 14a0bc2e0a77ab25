"""A branch's history, one page at a time, newest first, and its drawing as a graph.

    row           meaning
    publication   a commit that an attempt published
    replaced      an abandoned publication that was replaced; it is off the branch, kept under its tag
    fence         a commit of Perago: the fence was installed
    other         any other commit

A replaced publication comes right above the commit that it was published on.  A superseded one stays on the branch, and
names the commit that supersedes it.  A rebased one says how many commits it was rebased over, and a line connects it with
the commit that it was staged on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from perago.errors import LakeError
from perago.lake.base import Changes, Commit
from perago.protocol.metadata import KEY, REBASED_OVER, RETRY_COUNT, STAGING_BASE, SUPERSEDES, TASK_ID
from perago.protocol.names import REPLACED
from perago.ui.data_source import DataSource

COMMITS = 30
MOST_TAGS = 500
_AT_ONCE = 8
FENCE_KEY = "perago-fence"
Kind = Literal["publication", "replaced", "fence", "other"]

LANE = 18
_MOST_LANES = 5
_TOP, _MIDDLE, _BOTTOM = 0, 50, 100


@dataclass(frozen=True, slots=True)
class Line:
    """A line inside a row, as an SVG path; `kind` is `branch`, `replaced` or `beside`."""

    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class RowDrawing:
    """The lines of a row, the horizontal position of its dot, and the total width."""

    lines: Sequence[Line] = ()
    dot: int = LANE // 2
    width: int = LANE


@dataclass(frozen=True, slots=True)
class Maker:
    """The attempt that made a commit, by the commit's metadata."""

    workflow_id: str
    reference: str
    task_id: str
    retry_count: int


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A commit of a history."""

    commit: Commit
    kind: Kind
    maker: Maker | None = None
    tag: str = ""
    superseded_by: str = ""
    supersedes: str = ""
    passed: int = 0
    """Number of commits by others, made since it was staged, that it was published on top of."""
    base: str = ""
    changes: Changes | None = None
    drawn: RowDrawing = field(default_factory=RowDrawing)


@dataclass(frozen=True, slots=True)
class History:
    """Some commits of a branch, and the first commit of the next page."""

    rows: Sequence[HistoryRow]
    following: str | None
    tags_left_out: int = 0


def history_page(source: DataSource, repository: str, ref: str, count: int = COMMITS) -> History:
    """Return the commits from `ref` along first parents."""
    found = list(islice(source.lake.log(repository, ref, count + 1), count + 1))
    commits, following = found[:count], found[count].id if len(found) > count else None
    replaced, left_out = _replaced_rows(source, repository, commits)
    rows = [row for commit in commits for row in (*replaced.get(commit.id, ()), row_of(commit))]
    rows = _with_superseded(rows)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(
            pool.map(lambda row: replace(row, changes=changes_of(source, repository, row.commit)), rows)
        )
    return History(draw(rows, more=following is not None), following, left_out)


def row_of(commit: Commit, *, tag: str = "") -> HistoryRow:
    """Return the row of a commit, from its metadata."""
    metadata = commit.metadata
    maker = maker_of(commit)
    kind: Kind = "publication" if maker else "fence" if metadata.get(KEY) == FENCE_KEY else "other"
    passed = metadata.get(REBASED_OVER, "0")
    return HistoryRow(
        commit,
        "replaced" if tag else kind,
        maker,
        tag,
        supersedes=metadata.get(SUPERSEDES, ""),
        passed=int(passed) if passed.isdecimal() else 0,
        base=metadata.get(STAGING_BASE, ""),
    )


def maker_of(commit: Commit) -> Maker | None:
    """Return the attempt that made a commit, or None if its metadata names none."""
    metadata = commit.metadata
    workflow_id, slash, reference = metadata.get(KEY, "").partition("/")
    if not slash or TASK_ID not in metadata:
        return None
    retry = metadata.get(RETRY_COUNT, "0")
    return Maker(workflow_id, reference, metadata[TASK_ID], int(retry) if retry.isdecimal() else 0)


def changes_of(source: DataSource, repository: str, commit: Commit) -> Changes | None:
    """Return the changes of a commit against its first parent. None for a first commit, or if the lake fails."""
    if commit.first_parent is None:
        return None
    try:
        return source.count_changes(repository, commit.first_parent, commit.id)
    except LakeError:
        return None


def _replaced_rows(
    source: DataSource, repository: str, commits: Sequence[Commit]
) -> tuple[Mapping[str, list[HistoryRow]], int]:
    """Return replaced publications by the commit they were published on, newest first, and how many tags are left out."""
    on_page = {commit.id for commit in commits}
    tags = source.lake.tags(repository, REPLACED)
    found: dict[str, list[HistoryRow]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = pool.map(lambda tag: (tag.name, source.commit(repository, tag.commit)), tags[:MOST_TAGS])
        for name, commit in kept:
            if commit.first_parent in on_page and commit.id not in on_page:
                found.setdefault(str(commit.first_parent), []).append(row_of(commit, tag=name))
    for rows in found.values():
        rows.sort(key=lambda row: row.commit.created, reverse=True)
    return found, max(0, len(tags) - MOST_TAGS)


def _with_superseded(rows: Iterable[HistoryRow]) -> list[HistoryRow]:
    """Return the rows; publications superseded by a later one of the same step get its commit id."""
    later: dict[str, str] = {}
    done = []
    for row in rows:
        key = row.commit.metadata.get(KEY, "") if row.kind == "publication" else ""
        done.append(replace(row, superseded_by=later[key]) if key in later else row)
        if key and row.supersedes:
            later[key] = row.commit.id
    return done


def draw(rows: Sequence[HistoryRow], *, more: bool) -> list[HistoryRow]:
    """Return the rows with their lines; `more` rows follow on another page.

    Lane 0 is the branch.  Each row is drawn separately, in a box 100 high: a line that leaves it at the bottom continues
    at the top of the next one, whatever the height of the rows.
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
    widest = _beside(rows, lines)
    width = LANE * (1 + max(widest, *(int(row.kind == "replaced") for row in rows), 0)) if rows else LANE
    return [
        replace(row, drawn=RowDrawing(tuple(own), _across(1 if row.kind == "replaced" else 0), width))
        for row, own in zip(rows, lines, strict=True)
    ]


def _beside(rows: Sequence[HistoryRow], lines: list[list[Line]]) -> int:
    """Add a line from each rebased commit to the one it was staged on. Returns the highest lane, or 0."""
    at = {row.commit.id: number for number, row in enumerate(rows)}
    ends: list[int] = []
    for number, row in enumerate(rows):
        if not row.passed or not row.base:
            continue
        end = at.get(row.base, len(rows))
        # The first lane that is free from here on, starting at 2: replaced publications are in lane 1.
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
