"""Server calls by name: those a proxy saw of one attempt, and those docs/publication.md lists.

A name is a method and a path with placeholders for everything that differs between attempts, so that two
attempts of one task have the same names.  The API of lakeFS is named from its repository on, and its S3 gateway by `s3:`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.faults.proxy import Answered

PAGE = Path(__file__).parents[3] / "docs" / "publication.md"
HEADING = "## The calls of one attempt"
FENCES = ("proven", "soft")
"""The last columns of the page's table: with a fence that was proven to hold, and without one."""
SUM = "all"
LAST = frozenset({"DELETE /branches/{claim}", "DELETE /branches/{staging}", "POST /tasks/{task}/log"})
"""Calls after the result: once these are answered, an attempt makes no more calls."""

_FIRST_COUNT = 3

_COMMIT = r"[0-9a-f]{64}"
_STAGING = r"perago-staging-[\w-]+?-seq-[\w-]+"
_CLAIM = r"perago-staging-[\w-]+?-claim-[\w-]+"
_OWN = ((_CLAIM, "{claim}"), (_STAGING, "{staging}"), (_COMMIT, "{commit}"))
_RULES = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # Conductor
        (r"/api/tasks/poll/batch/[^/]+", "/tasks/poll/batch/{task name}"),
        (r"/api/tasks/[0-9a-f-]{36}(/log)?", r"/tasks/{task}\1"),
        (r"/api/(tasks)", r"/\1"),
        # lakeFS
        (r"/api/v1/repositories/[^/]+/refs/[^/]+@/commits", "/refs/{branch}@/commits"),
        (r"/api/v1/repositories/[^/]+/refs/([^/]+)/merge/[^/]+", r"/refs/\1/merge/{branch}"),
        (r"/api/v1/repositories/[^/]+(/.+)", r"\1"),
        (r"/(?!api/)[^/]+/([^/]+)/(_lakefs_actions/.+)", r"s3:/{repository}/\1/\2"),
        (r"/(?!api/)[^/]+/([^/]+)/.+", r"s3:/{repository}/\1/{object}"),
    )
)


def named(line: str) -> str:
    """Return the name of a call from its `METHOD path`; an unknown path stays as it is, so that it shows."""
    method, _, address = line.partition(" ")
    path = unquote(urlsplit(address).path)
    for pattern, name in _RULES:
        if (match := pattern.fullmatch(path)) is not None:
            path = match.expand(name)
            break
    for pattern, name in _OWN:
        path = re.sub(pattern, name.replace("\\", r"\\"), path)
    return f"{method} {path}"


def calls(answered: Iterable[Answered]) -> Counter[str]:
    """Count the calls by name; empty polls and queue sizes belong to no attempt."""
    return Counter(named(one.line) for one in answered if not _brought_nothing(one))


def _brought_nothing(one: Answered) -> bool:
    return "/tasks/queue/sizes" in one.line or ("/tasks/poll/" in one.line and one.size <= len("[]"))


def on_the_page(kind: str) -> Counter[str]:
    """Count the calls in the page's table for an attempt of that kind; a call may be in several rows."""
    found: Counter[str] = Counter()
    for call, count in _rows(kind):
        found[call] += count
    del found[SUM]
    return +found


def sum_on_the_page(kind: str) -> int:
    """Return the sum in the table's last row."""
    return dict(_rows(kind))[SUM]


def _rows(kind: str) -> Iterator[tuple[str, int]]:
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == _FIRST_COUNT + len(FENCES) and cells[-1].isdigit():
            yield cells[1].strip("`"), int(cells[_FIRST_COUNT + FENCES.index(kind)])
