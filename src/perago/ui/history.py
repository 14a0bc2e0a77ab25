"""How a history is drawn: a dot for each row, and lines from row to row, in lanes.

Lane 0 is the branch.  Each row is drawn alone, in a box 100 high: a line that leaves it at the bottom goes on at the top of
the next one, whatever height the rows get.

A branch's history, a page at a time, newest first: who made each commit, and what was replaced or superseded.

    row           what it is
    publication   a commit that an attempt published
    replaced      a publication that was abandoned and replaced; it is off the branch, kept under its tag
    fence         Perago's own: the fence was installed
    other         a commit that somebody else made

A replaced publication stands right above the commit that it was published on.  A superseded one stays on the branch, and
says which commit came in its place.  One that was published beside others says how many it passed, and a line leads from it
to the commit that it was staged on.
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
from perago.ui.data_source import Site

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


COMMITS = 30
MOST_TAGS = 500
_AT_ONCE = 8
FENCE_KEY = "perago-fence"
Kind = Literal["publication", "replaced", "fence", "other"]


@dataclass(frozen=True, slots=True)
class Maker:
    """Which attempt made a commit, by what the commit says."""

    workflow_id: str
    reference: str
    task_id: str
    retry_count: int


@dataclass(frozen=True, slots=True)
class Row:
    """A commit of a history."""

    commit: Commit
    kind: Kind
    maker: Maker | None = None
    tag: str = ""
    superseded_by: str = ""
    supersedes: str = ""
    passed: int = 0
    """How many commits of others it was published on top of, that were made since it was staged."""
    base: str = ""
    changes: Changes | None = None
    drawn: Drawn = field(default_factory=Drawn)


@dataclass(frozen=True, slots=True)
class History:
    """Some commits of a branch, and the commit that the next page begins at."""

    rows: Sequence[Row]
    following: str | None
    tags_left_out: int = 0


def history_page(site: Site, repository: str, ref: str, count: int = COMMITS) -> History:
    """The commits from `ref` along first parents."""
    found = list(islice(site.lake.log(repository, ref, count + 1), count + 1))
    commits, following = found[:count], found[count].id if len(found) > count else None
    replaced, left_out = _replaced(site, repository, commits)
    rows = [row for commit in commits for row in (*replaced.get(commit.id, ()), row_of(commit))]
    rows = _with_superseded(rows)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(
            pool.map(lambda row: replace(row, changes=changes_of(site, repository, row.commit)), rows)
        )
    return History(draw(rows, more=following is not None), following, left_out)


def row_of(commit: Commit, *, tag: str = "") -> Row:
    """A commit by what it says about itself."""
    said = commit.metadata
    maker = maker_of(commit)
    kind: Kind = "publication" if maker else "fence" if said.get(KEY) == FENCE_KEY else "other"
    passed = said.get(REBASED_OVER, "0")
    return Row(
        commit,
        "replaced" if tag else kind,
        maker,
        tag,
        supersedes=said.get(SUPERSEDES, ""),
        passed=int(passed) if passed.isdecimal() else 0,
        base=said.get(STAGING_BASE, ""),
    )


def maker_of(commit: Commit) -> Maker | None:
    """The attempt that made a commit, or None where no attempt says so."""
    said = commit.metadata
    workflow_id, slash, reference = said.get(KEY, "").partition("/")
    if not slash or TASK_ID not in said:
        return None
    retry = said.get(RETRY_COUNT, "0")
    return Maker(workflow_id, reference, said[TASK_ID], int(retry) if retry.isdecimal() else 0)


def changes_of(site: Site, repository: str, commit: Commit) -> Changes | None:
    """What a commit changed against its first parent; None for a first commit, and where it cannot be told."""
    if commit.first_parent is None:
        return None
    try:
        return site.counted(repository, commit.first_parent, commit.id)
    except LakeError:
        return None


def _replaced(site: Site, repository: str, commits: Sequence[Commit]) -> tuple[Mapping[str, list[Row]], int]:
    """The replaced publications, by the commit that they were published on; the newest first."""
    on_page = {commit.id for commit in commits}
    tags = site.lake.tags(repository, REPLACED)
    found: dict[str, list[Row]] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        kept = pool.map(lambda tag: (tag.name, site.commit(repository, tag.commit)), tags[:MOST_TAGS])
        for name, commit in kept:
            if commit.first_parent in on_page and commit.id not in on_page:
                found.setdefault(str(commit.first_parent), []).append(row_of(commit, tag=name))
    for rows in found.values():
        rows.sort(key=lambda row: row.commit.created, reverse=True)
    return found, max(0, len(tags) - MOST_TAGS)


def _with_superseded(rows: Iterable[Row]) -> list[Row]:
    """Each publication that a later one of the same step came in place of, with that one's id."""
    later: dict[str, str] = {}
    done = []
    for row in rows:
        key = row.commit.metadata.get(KEY, "") if row.kind == "publication" else ""
        done.append(replace(row, superseded_by=later[key]) if key in later else row)
        if key and row.supersedes:
            later[key] = row.commit.id
    return done
